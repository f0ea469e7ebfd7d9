"""`TileBudget`: a grid of block sizes, which of them fit a GPU, and what the chosen one uses there.

The numbers are `flashlab.tile_budget`'s; budget_numbers.js computes them again in the browser.
"""

import traitlets

from flashlab import gpus, tile_budget
from flashlab.problem import ITEMSIZE
from flashlab.text import t
from flashlab.widgets._base import Widget

DIMS = (32, 64, 128, 256)


class TileBudget(Widget):
    """Block sizes against shared memory and registers of a GPU; the traits follow what the reader chooses.

    Open it with `TileBudget.of(problem, gpu="H200")`. `error` is the sentence shown instead of the picture.
    """

    text_area = "budget"
    esm_first = ("budget_numbers.js",)
    twin_height = 640

    gpus = traitlets.List().tag(sync=True)  # what tileBudget in JavaScript takes, one dict for each GPU
    shipped = traitlets.Dict().tag(sync=True)  # "GPU itemsize D" -> [[name, Br, Bc, warps, stages], ...]
    blocks = traitlets.List(traitlets.Int()).tag(sync=True)
    dims = traitlets.List(traitlets.Int()).tag(sync=True)
    lengths = traitlets.List(traitlets.Int()).tag(sync=True)
    gpu = traitlets.Unicode("H200").tag(sync=True)
    block_q = traitlets.Int(128).tag(sync=True)
    block_k = traitlets.Int(64).tag(sync=True)
    head_dim = traitlets.Int(128).tag(sync=True)
    itemsize = traitlets.Int(2).tag(sync=True)
    warps = traitlets.Int(4).tag(sync=True)
    stages = traitlets.Int(2).tag(sync=True)
    n = traitlets.Int(4096).tag(sync=True)
    error = traitlets.Unicode("").tag(sync=True)

    @classmethod
    def of(cls, problem, gpu="H200", *, block_q=None, block_k=None, warps=None, stages=None, **traits):
        """The widget for a Problem's head dim, dtype and length on a GPU (a name or a `gpus.GPU`).

        Blocks, warps and stages default to what flashlab ships there, else to the problem's blocks, 4 and 2.
        What does not fit the model (an unknown GPU, N = 0, D > 256) becomes a sentence in the widget.
        """
        try:
            return cls(**_state(problem, gpu, block_q, block_k, warps, stages), **traits)
        except (TypeError, ValueError, AttributeError) as problem_found:
            return cls(error=str(problem_found), **traits)

    def summary(self):
        return self.error or t(
            "budget.summary",
            language=self.strings.get("lang"),
            **dict(br=self.block_q, bc=self.block_k, gpu=self.gpu),
        )


def _state(problem, gpu, block_q, block_k, warps, stages):
    chosen, itemsize = gpus.get(gpu), ITEMSIZE[problem.dtype]
    ships = tile_budget.shipped(chosen, problem.D, itemsize) if problem.D <= 256 and itemsize < 8 else []
    ship = (
        ships[0 if problem.causal else min(1, len(ships) - 1)][1]
        if ships
        else (problem.block_q, problem.block_k, 4, 2)
    )
    given = (block_q, block_k, warps, stages)
    block_q, block_k, warps, stages = (b if a is None else a for a, b in zip(given, ship, strict=False))
    how = dict(itemsize=itemsize, warps=warps, stages=stages, n=max(problem.Nq, problem.Nk))
    tile_budget.tile_budget(chosen, block_q, block_k, problem.D, **how)  # refuses what cannot be
    known = {**gpus.ALL, chosen.name: chosen}
    dims = sorted({*DIMS, problem.D})
    return dict(
        gpus=[facts(g) for g in known.values()],
        shipped={
            f"{g.name} {size} {d}": [[name, *config[:4]] for name, config in tile_budget.shipped(g, d, size)]
            for g in known.values()
            for size in (2, 4)
            for d in dims
        },
        blocks=sorted({*tile_budget.BLOCKS, block_q, block_k}),
        dims=dims,
        lengths=sorted({*(2**i for i in range(8, 18)), how["n"]}),
        gpu=chosen.name,
        head_dim=problem.D,
        **dict(block_q=block_q, block_k=block_k, **how),
    )


def facts(gpu):
    """What the JavaScript needs to know of a GPU."""
    hopper = gpu.compute_capability >= (9, 0)
    numbers = ("shared_per_sm", "shared_per_program", "registers_per_sm", "max_threads_per_sm")
    return {
        "name": gpu.name,
        "hopper": hopper,
        "rest": tile_budget.REST["hopper" if hopper else "before"],
        "reserved": tile_budget.reserved(gpu),
        "l1": tile_budget.L1_AND_SHARED.get(gpu.compute_capability),
        "tensor_memory": gpu.compute_capability[0] == 10,
        **{name: int(getattr(gpu, name)) for name in numbers},
    }
