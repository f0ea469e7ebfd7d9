"""Measurements: each module times or weighs one thing on the machine it runs on, and says which one."""
