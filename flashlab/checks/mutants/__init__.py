"""Wrong answers on purpose: one classic mistake each, to learn from and to prove that the checks bite.

`load("online_softmax")` gives the planted answers of one exercise by name; the first, "nothing wrong", is
right.
"""

import importlib

from flashlab.errors import unknown_name

EXERCISES = ("online_softmax",)


def load(exercise):
    """Return the planted answers of `exercise` as a dict name -> function, "nothing wrong" first.

    Every function takes what the exercise's answer takes. Raises ValueError for an unknown exercise.
    """
    if exercise not in EXERCISES:
        raise unknown_name("exercise", exercise, EXERCISES)
    return dict(importlib.import_module(f"flashlab.checks.mutants.{exercise}").MUTANTS)


def key(name):
    """The name of a mutant as a key of the text tables: "max starts at 0" -> "max_starts_at_0"."""
    return name.replace(",", "").replace(" ", "_")
