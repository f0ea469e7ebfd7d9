"""What is shipped, kernel by kernel: each launch configuration of the table as a call that can be compiled.

A case is one GPU generation, format, head dim and direction. Directions with a word more than the table's are
variants of one configuration: other masks or a paged cache make other machine code.
"""

from typing import NamedTuple

import torch

from flashlab.kernels import decode, fa1, fa2, fa2_backward, launch, varlen, varlen_backward

GENERATIONS = (80, 89, 90, 100, 120)
DTYPES = {"float16": torch.float16, "float32": torch.float32}  # bfloat16: the same configurations as float16
HEAD_DIMS = (64, 128, 256)
DIRECTIONS = (
    "forward", "forward short", "forward simple", "dkdv", "dkdv simple", "dq", "dq simple",
    "forward packed", "dkdv packed", "dq packed", "fa1", "fa1 backward",
    "decode", "decode group", "decode paged",
)  # fmt: skip


class Case(NamedTuple):
    """One shipped configuration: sm_`arch`, a name of DTYPES, head dim, one of DIRECTIONS."""

    arch: int
    dtype: str
    dim: int
    direction: str

    def __str__(self):
        return f"sm_{self.arch} {self.dtype} D {self.dim} {self.direction}"

    @property
    def config(self):
        """The `launch.Config` from the table."""
        return launch.table_config(self.arch, DTYPES[self.dtype].itemsize, self.dim, self.direction)

    @property
    def inner_rows(self):
        """Rows of the tiles that come by in the inner loop."""
        by_rows = self.direction.startswith("dkdv") or self.direction.startswith("fa1")
        return self.config.block_q if by_rows else self.config.block_k


def cases(arch=None, dtype=None):
    """All cases, or those of one GPU generation or format."""
    return [
        Case(a, d, dim, direction)
        for a in GENERATIONS if arch in (None, a)
        for d in DTYPES if dtype in (None, d)
        for dim in HEAD_DIMS
        for direction in DIRECTIONS
    ]  # fmt: skip


def run(case):
    """Launch the case's kernels on small tensors (inside `launch.capture`: nothing is computed)."""
    name, config, how = case.direction, case.config, dict(causal="top-left", scale=0.1)
    if name.endswith("simple"):
        how["causal"] = None
    if name.startswith("decode"):
        return run_decode(case)
    if name.endswith("packed"):
        return run_packed(case, how)
    q, row = torch.empty(1, 4, 512, case.dim, dtype=DTYPES[case.dtype]), torch.empty(1, 4, 512)
    if name == "fa1":
        return fa1.forward(q, q, q, config=config, **how)
    if name == "fa1 backward":
        return fa1.backward(q, q, q, q, row, q, config=config, **how)
    if name.startswith("forward"):
        return fa2.forward(q, q, q, config=config, **how)
    backward = fa2_backward.backward_kv if name.startswith("dkdv") else fa2_backward.backward_q
    return backward(q, q, q, q, row, row, config=config, **how)


def run_packed(case, how):
    q = torch.empty(4096, 8, case.dim, dtype=DTYPES[case.dtype])
    rows, cu = torch.empty(8, 4096).t(), torch.zeros(9, dtype=torch.int32)
    how |= dict(config=case.config)
    if case.direction.startswith("forward"):
        return varlen.forward(q, q, q, cu, cu, **how)
    dkdv = case.direction.startswith("dkdv")
    backward = varlen_backward.backward_kv if dkdv else varlen_backward.backward_q
    return backward(q, q, q, q, rows, rows, cu, cu, **how)


def run_decode(case):
    """One token of 8 query heads for 2 K/V heads; "group": of 32 heads; "paged": in pages of 16 tokens."""
    dtype, how = DTYPES[case.dtype], dict(num_splits=1, scale=0.1, config=case.config)
    q = torch.empty(2, 64 if case.direction == "decode group" else 8, 1, case.dim, dtype=dtype)
    cache = torch.empty(2, 2, 512, case.dim, dtype=dtype)
    if case.direction == "decode paged":
        cache = torch.empty(9, 16, 2, case.dim, dtype=dtype)
        how["block_table"] = torch.empty(2, 4, dtype=torch.int32)
    return decode.decode(q, cache, cache, torch.empty(2, dtype=torch.int32), **how)
