"""FlashAttention-2 forward with its query blocks started in another order, to measure what that is worth.

Each variant is a second copy of `flashlab.kernels.fa2`, line by line the same, with another `my_block`.
"""

import functools
import importlib.util

import triton
import triton.language as tl

from flashlab.kernels import fa2


@triton.jit
def natural(num_rows, num_heads, BLOCK: tl.constexpr, LAST_FIRST: tl.constexpr):
    """(block, batch, head): the blocks of a head from the first to the last."""
    num_blocks = (num_rows + BLOCK - 1) // BLOCK
    pid = tl.program_id(0)
    head = pid // num_blocks
    return pid % num_blocks, (head // num_heads).to(tl.int64), (head % num_heads).to(tl.int64)


@triton.jit
def longest_first(num_rows, num_heads, BLOCK: tl.constexpr, LAST_FIRST: tl.constexpr):
    """(block, batch, head): the last blocks of all heads, then those before them."""
    num_blocks = (num_rows + BLOCK - 1) // BLOCK
    all_heads = tl.num_programs(0) // num_blocks
    pid = tl.program_id(0)
    head = pid % all_heads
    block = num_blocks - 1 - pid // all_heads
    return block, (head // num_heads).to(tl.int64), (head % num_heads).to(tl.int64)


@functools.cache
def forward(order):
    """`fa2.forward` for "natural", "reversed" (the shipped kernel) or "longest-first"."""
    if order == "reversed":
        return fa2.forward
    spec = importlib.util.spec_from_file_location(
        f"flashlab.bench.fa2_{order.replace('-', '_')}", fa2.__file__
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.my_block = {"natural": natural, "longest-first": longest_first}[order]
    return module.forward
