"""The kernels for packed sequences as machine code for Hopper, compiled here without a GPU."""

import pytest

pytest.importorskip("triton")
import torch

from flashlab.kernels import gate, launch, varlen, varlen_backward

pytestmark = pytest.mark.gate

# Stores of registers to memory: around the loop over tiles that the diagonal crosses, none in the other loop.
SPILLS = {("dkdv", 256): 1}


def report(direction, dim, causal="top-left", arch=90):
    """What the shipped configuration of a direction compiles to."""
    q, rows = torch.empty(4096, 8, dim, dtype=torch.float16), torch.empty(8, 4096).t()
    cu = torch.zeros(9, dtype=torch.int32)
    config = launch.table_config(arch, 2, dim, direction + " packed")
    how = dict(causal=causal, scale=0.1, config=config)
    call = {
        "forward": lambda: varlen.forward(q, q, q, cu, cu, **how),
        "dkdv": lambda: varlen_backward.backward_kv(q, q, q, q, rows, rows, cu, cu, **how),
        "dq": lambda: varlen_backward.backward_q(q, q, q, q, rows, rows, cu, cu, **how),
    }[direction]
    (result,) = gate.compile_calls(call, arch)
    return config, result


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("direction", ["forward", "dkdv", "dq"])
def test_on_hopper_the_loops_do_not_spill_and_their_pipeline_is_there(direction, dim):
    config, result = report(direction, dim)
    assert result.spills <= SPILLS.get((direction, dim), 0)
    assert result.shared <= gate.SHARED_MEMORY[90]
    assert result.count("LDGSTS") + result.count("UTMALDG") > 0, "no asynchronous loads"
    assert result.count("HGMMA") > 0, "no tensor core instructions"
    assert result.count("WARPGROUP") <= 16, "the tensor core instructions wait for each other"
    inner = config.block_q if direction == "dkdv" else config.block_k
    assert result.shared >= config.num_stages * inner * dim * 2, "the pipeline's stages are not there"


@pytest.mark.parametrize("arch", [80, 89])
def test_older_gpus_get_kernels_that_fit(arch):
    for direction in ("forward", "dkdv", "dq"):
        _, result = report(direction, 128, arch=arch)
        assert result.shared <= gate.SHARED_MEMORY[arch]
