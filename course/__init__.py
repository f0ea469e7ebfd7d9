"""How the course is written: sources as percent scripts and the builder that makes notebooks (see README.md)."""
