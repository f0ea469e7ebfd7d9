"""Attention as plain loops in NumPy, standard and FlashAttention: what the papers' algorithms do, step by
step, byte by byte.
"""

from flashlab.tiled.backward import fa1_backward, fa2_backward
from flashlab.tiled.forward import fa1_forward, fa2_forward
from flashlab.tiled.standard import standard_backward, standard_forward

__all__ = [
    "fa1_backward",
    "fa1_forward",
    "fa2_backward",
    "fa2_forward",
    "standard_backward",
    "standard_forward",
]
