"""A short training run: the same character model on two attention backends, and how far their losses part.

`python -m flashlab.train --backend fa2 --steps 20`. The text is data/kitchen.txt, written for flashlab.
"""

from flashlab.train.char_model import CharModel, Sizes
from flashlab.train.run import batches, compare, losses, text

__all__ = ["CharModel", "Sizes", "batches", "compare", "losses", "text"]
