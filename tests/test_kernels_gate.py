"""The kernels as machine code for a GPU, compiled here without one: no spills, and the load pipeline
is there.
"""

import pytest

pytest.importorskip("triton")
import torch

from flashlab.kernels import fa2, gate, launch


def reports(arch, dtype, dim, causal):
    q = torch.empty(1, 4, 512, dim, dtype=dtype)
    config = launch.table_config(arch, q.element_size(), dim)
    call = lambda: fa2.forward(q, q, q, causal=causal, scale=0.1, config=config)  # noqa: E731
    return config, gate.compile_calls(call, arch)


@pytest.mark.parametrize("dim", [64, 80, 128, 256])
def test_the_forward_on_hopper_has_no_spills_and_keeps_its_pipeline(dim):
    config, (report,) = reports(90, torch.float16, dim, "top-left")
    assert report.spills == 0
    assert report.shared <= gate.SHARED_MEMORY[90]
    tile = config.block_k * max(64, dim) * 2
    assert report.shared >= config.num_stages * 2 * tile, "the pipeline's stages are not there"
    assert report.count("HGMMA") > 0, "no tensor core instructions"
    assert report.count("WARPGROUP") <= 8, "the tensor core instructions wait for each other"
    assert report.count("LDGSTS") + report.count("UTMALDG") > 0, "no asynchronous loads"


def test_a_launch_is_only_written_down_while_it_is_captured():
    q = torch.full((1, 1, 4, 8), 2.0)
    with launch.capture() as calls:
        fa2.forward(q, q, q, scale=1.0)
    ((kernel, args, options),) = calls
    assert (
        kernel is fa2.forward_kernel and args[0] is q and options["num_warps"] == launch.INTERPRETED.num_warps
    )
    assert torch.equal(fa2.forward(q, q, q, scale=1.0)[0], q)
