"""A short training run: the same character model on two attention backends, and how far their losses part.

`flashlab train --backend fa2 --steps 20`. The text is data/kitchen.txt, written for flashlab.
"""

import importlib

HOMES = dict(
    CharModel="char_model", Sizes="char_model", batches="run", compare="run", losses="run", text="run"
)
__all__ = list(HOMES)


def __getattr__(name):
    """Import where a name is asked for: the command line need not wait for torch."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{HOMES[name]}"), name)
