"""Gluon's names for TMA copies, whichever this Triton has: 3.6 to 3.8 have one pair, later ones another."""

from triton.experimental.gluon.language.nvidia.hopper import tma

tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
