"""Random numbers that depend on a seed and a position only (Philox4x32-10, Salmon et al. 2011), in PyTorch.

Dropout uses them so that forward and backward, and every backend and block size, drop the same elements:
element (b, h, i, j) is kept if the top 24 bits of philox(seed; j, i, b * heads + h, 0)[0], as a fraction, are
at least p. Triton's tl.philox gives the same bits.
"""

import math

import torch

LOW = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def multiply(a, constant):
    """High and low 32 bits of the product of `a` (int64 tensor of 32-bit numbers) and a 32-bit constant."""
    # Two products with halves of the constant: neither leaves the 63 bits of a signed integer.
    high, low = a * (constant >> 16), a * (constant & 0xFFFF)
    total = high + (low >> 16)
    return total >> 16, ((total << 16) | (low & 0xFFFF)) & LOW


def philox(seed, c0, c1, c2, c3):
    """The first 32-bit number for counters c0 to c3, int64 tensors that broadcast, and seed, int64 [1]."""
    k0, k1 = seed & LOW, (seed >> 32) & LOW
    for _ in range(10):
        high0, low0 = multiply(c0, MULTIPLIERS[0])
        high2, low2 = multiply(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + KEY_STEPS[0]) & LOW, (k1 + KEY_STEPS[1]) & LOW
    return c0


def dropout_mask(seed, batch, heads, num_queries, num_keys, p):
    """Which elements dropout with probability p keeps: bool [batch, heads, num_queries, num_keys]."""
    head, row, key = (torch.arange(n, device=seed.device) for n in (batch * heads, num_queries, num_keys))
    random = philox(seed, key, row[:, None], head[:, None, None], torch.zeros_like(seed))
    return ((random >> 8) >= math.ceil(p * 2**24)).view(batch, heads, num_queries, num_keys)
