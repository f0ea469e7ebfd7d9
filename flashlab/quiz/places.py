"""Where the course treats a question, in words: the bank's anchors ("03_C#C05") and exercises as a learner
can find them. What is not written yet is said to be so, never named as if it were there.
"""

from pathlib import Path

from flashlab.text import t

ROOT = Path(__file__).parents[2]


def place(anchor, lang="en"):
    """ "lesson C, at C05 (notebooks/03_C.ipynb)", or that the lesson is in preparation; "" for no anchor."""
    stem, _, name = anchor.partition("#")
    if not stem:
        return ""
    letter = stem.rpartition("_")[2]
    key = "lesson" if written(anchor) else "lesson_pending"
    return t(f"quiz.places.{key}", lang, letter=letter, name=name, file=f"notebooks/{stem}.ipynb")


def written(anchor):
    """Is the lesson of this anchor there? Without a folder of lessons (an installed package) it is taken to
    be.
    """
    folder, stem = ROOT / "notebooks", anchor.partition("#")[0]
    return not folder.is_dir() or (folder / f"{stem}.ipynb").exists()


def exercises(names):
    """Those of `names` that can be done now."""
    from flashlab import checks

    return [n for n in names if n in checks.EXERCISES]
