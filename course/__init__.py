"""How the course is written: percent-script sources and the builder of the notebooks (see README.md)."""
