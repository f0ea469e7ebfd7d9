"""The inputs of the course: a tiny example whose numbers fit a screen, and the real Q, K, V of one sentence."""

import numpy as np


def tiny():
    """The running example: q, k, v, each [6, 2] float64. With scale ln 2, exp(scale * q.k) is a power of two.

    The second column of v is all ones, so the second output of attention is the sum of the row's weights.
    """
    q = [(0, 0), (0, 1), (1, 1), (-1, -1), (1, -1), (1, 0)]
    k = [(1, 0), (0, 1), (3, -1), (2, 0), (2, 1), (0, 2)]
    v = [(9, 1), (6, 1), (1, 1), (4, 1), (5, 1), (12, 1)]
    return tuple(np.array(a, dtype=np.float64) for a in (q, k, v))
