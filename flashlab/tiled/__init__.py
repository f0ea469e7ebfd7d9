"""FlashAttention as plain loops over tiles, in NumPy: what the papers' algorithms do, step by step, byte
by byte.
"""

from flashlab.tiled.backward import fa1_backward, fa2_backward
from flashlab.tiled.forward import fa1_forward, fa2_forward

__all__ = ["fa1_backward", "fa1_forward", "fa2_backward", "fa2_forward"]
