"""The kernels as machine code for a GPU, compiled here without one: no spills, and the load pipeline
is there.
"""

import pytest

pytest.importorskip("triton")
import torch
import triton

from flashlab.kernels import fa2, fa2_backward, gate, launch

pytestmark = pytest.mark.gate

# triton 3.7.1; none with 3.6.0. Registers stored to memory once or twice in a kernel, not in its inner loop.
RECORDED_SPILLS = {("dkdv", 128): 3, ("dkdv", 256): 8}
CASES = [(d, dim) for d in gate.DIRECTIONS for dim in (64, 128, 256)]


@pytest.mark.parametrize(("direction", "dim"), CASES)
def test_on_hopper_nothing_more_spills_and_the_pipeline_is_there(direction, dim):
    config, calls = gate.directions(torch.float16, dim, 90)
    (report,) = gate.compile_calls(calls[direction], 90)
    config = config[direction]
    assert report.spills <= RECORDED_SPILLS.get((direction, dim), 0)
    assert report.shared <= gate.SHARED_MEMORY[90]
    inner = config.block_q if direction == "dkdv" else config.block_k
    stages = config.num_stages * 2 * inner * dim * 2  # two tensors of 2-byte elements come by
    assert report.shared >= stages, "the pipeline's stages are not there"
    assert (report.count("UTMALDG") > 0) == config.tma
    assert report.count("LDGSTS") + report.count("UTMALDG") > 0, "no asynchronous loads"
    assert report.count("HGMMA") > 0, "no tensor core instructions"
    assert report.count("WARPGROUP") <= 16, "the tensor core instructions wait for each other"


def test_tensors_that_tma_cannot_describe_compile_with_pointers():
    q = torch.empty(1, 4, 512, 129, dtype=torch.float16)[..., 1:]
    config = launch.table_config(90, 2, 128)
    (report,) = gate.compile_calls(lambda: fa2.forward(q, q, q, scale=0.1, config=config), 90)
    assert report.count("UTMALDG") == 0 and report.spills <= 4


@pytest.mark.parametrize("arch", [80, 89, 100, 120])
def test_other_gpus_get_kernels_that_fit_and_do_not_spill(arch):
    _, calls = gate.directions(torch.float16, 128, arch)
    (report,) = gate.compile_calls(calls["forward"], arch)
    assert report.shared <= gate.SHARED_MEMORY[arch] and report.spills == 0


@pytest.mark.parametrize("dim", [8, 80])
def test_a_padded_head_dim_and_dropout_compile(dim):
    q, row = torch.empty(2, 4, 512, dim, dtype=torch.float16), torch.empty(2, 4, 512)
    how = dict(causal="bottom-right", scale=0.1, key_lengths=torch.tensor([5, 9], dtype=torch.int32))
    how |= dict(dropout=launch.dropout_arguments(0.1, torch.tensor([1])))
    config = launch.table_config(90, 2, dim)._replace(block_q=64, block_k=64)
    for call in (
        lambda: fa2.forward(q, q[:, :2], q[:, :2], config=config, **how),
        lambda: fa2_backward.backward_kv(q, q[:, :2], q[:, :2], q, row, row, config=config, **how),
        lambda: fa2_backward.delta(q, q, row),
    ):
        (report,) = gate.compile_calls(call, 90)
        assert report.registers > 0


@pytest.mark.skipif(
    triton.__version__.startswith("3.6"), reason="triton 3.6 interprets with NumPy < 2.4 only"
)
def test_a_launch_is_only_written_down_while_it_is_captured():
    q = torch.full((1, 1, 4, 8), 2.0)
    with launch.capture() as calls:
        fa2.forward(q, q, q, scale=1.0)
    ((kernel, args, options),) = calls
    assert (
        kernel is fa2.forward_kernel and args[0] is q and options["num_warps"] == launch.INTERPRETED.num_warps
    )
    assert torch.equal(fa2.forward(q, q, q, scale=1.0)[0], q)
