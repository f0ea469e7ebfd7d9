"""The inputs of the course: a tiny example that fits a screen, and the real Q, K, V of one sentence.

kitchen.txt, which flashlab.train reads, was written for flashlab and is under its MIT licence.
"""

from pathlib import Path

import numpy as np


def tiny():
    """The running example: q, k, v, each [6, 2] float64. With scale ln 2, exp(scale * q.k) is a power of two.

    The second column of v is all ones, so the second output of attention is the sum of the row's weights.
    """
    q = [(0, 0), (0, 1), (1, 1), (-1, -1), (1, -1), (1, 0)]
    k = [(1, 0), (0, 1), (3, -1), (2, 0), (2, 1), (0, 2)]
    v = [(9, 1), (6, 1), (1, 1), (4, 1), (5, 1), (12, 1)]
    return tuple(np.array(a, dtype=np.float64) for a in (q, k, v))


def minilm():
    """A real sentence in a pretrained MiniLM: Q, K, V, each [72, 37, 32] float16, and its 37 tokens (str).

    Entry 12 * layer + h of the first axis is head h of that layer (6 layers, 12 heads). The usual scale,
    1/sqrt(32), is not applied yet. Fresh arrays at every call. Source: make_minilm.py, minilm_LICENSE.txt.
    """
    with np.load(Path(__file__).with_name("minilm.npz"), allow_pickle=False) as stored:
        return stored["Q"], stored["K"], stored["V"], stored["tokens"].tolist()


def minilm_sentence():
    """The sentence behind `minilm()` and where its numbers come from: (sentence, provenance), two strings."""
    with np.load(Path(__file__).with_name("minilm.npz"), allow_pickle=False) as stored:
        return str(stored["sentence"]), str(stored["provenance"])
