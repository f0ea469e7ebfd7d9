"""Kernels of several warpgroups (Gluon, Hopper) on a CPU: who waits for whom, checked, and when, as a model."""
