"""The Hopper kernels as machine code, compiled without a GPU. FLASHLAB_GATE=all takes every step and dim."""

import os

import pytest

pytest.importorskip("triton")
import torch
from test_hopper import small
from warpgroup_planting import Fault, plant

from flashlab.kernels import gate, hopper_gate, hopper_host, launch

pytestmark = pytest.mark.gate
CASES = hopper_gate.ALL if os.environ.get("FLASHLAB_GATE") == "all" else hopper_gate.USUAL


@pytest.fixture(scope="module")
def reports():
    """Each case's Report, compiled by two processes."""
    return dict(zip(CASES, hopper_gate.compile_cases(CASES), strict=True))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_spills_nothing_is_serialised_and_the_softmax_is_hidden(case, reports):
    assert hopper_gate.problems(case, reports[case]) == []


def test_too_few_registers_are_found_as_spills_and_as_serialised_products():
    q = torch.empty(1, 2, 512, 128, dtype=torch.float16)
    with launch.capture() as calls:
        hopper_host.forward(q, q, q, scale=0.1, step=1)
    ((kernel, args, options),) = calls
    report = gate.compile_kernel(kernel, args, options | dict(maxnreg=96), 90)
    found = hopper_gate.problems(hopper_gate.Case(1, 128), report)
    assert "spills" in found[0] and "serialised" in found[1]
    assert report.count("WARPGROUP") == 2 * report.count("HGMMA")


def test_q_kept_in_registers_is_found(monkeypatch, tmp_path):
    place = "q_tiles.index(WHICH).reshape([ROWS, BLOCK_D])"
    load = f"{place}.load(gl.DotOperandLayout(0, SCORES, 2))"
    modules = plant(Fault("Q in registers", "", f"q = {place}\n", f"q = {load}\n", "", ()), tmp_path)
    monkeypatch.setattr(hopper_host, "hopper", modules[""])
    monkeypatch.setattr(hopper_host, "ORDERS", {"one_by_one": modules["_orders"].one_by_one})
    case = hopper_gate.Case(2, 128, masked=False)
    found = hopper_gate.problems(case, hopper_gate.compile_case(case))
    assert found == ["an operand of a product stays in registers while the loop goes on"]


def test_any_number_of_heads_mask_length_and_stride_is_the_same_machine_code():
    with launch.capture() as calls:
        for n in (1, 16, 100, 1024):
            q = torch.empty(1, 2, n, 64, dtype=torch.float16)
            hopper_host.forward(q, q, q, causal="bottom-right", scale=0.1, config=small(3))
    kernel = calls[0][0]
    sizes = {"num_heads", "group", "num_queries", "num_keys", "shift"}
    assert sizes == {
        kernel.params[i].name for i in range(len(kernel.params)) if kernel.params[i].do_not_specialize
    }
    assert len({str(options) for _, _, options in calls}) == 1


def test_exp2_between_the_start_of_a_product_and_its_wait_are_counted():
    listing = """
        MUFU.EX2 R1 ;
        WARPGROUP.ARRIVE ;
        HGMMA.64x128x16.F32 R24 ;
        @P0 MUFU.EX2 R1 ;
        WARPGROUP.ARRIVE ;
        WARPGROUP.DEPBAR.LE gsb0, 0x1 ;
        MUFU.EX2 R1 ;
        WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        MUFU.EX2 R1 ;
    """
    assert gate.overlapped(listing) == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(spills=3), "3 spills"),
        (dict(shared=300_000), "300000 bytes"),
        (dict(registers=200), "no reallocation"),
        (dict(WARPGROUP=128), "serialised"),
        (dict(overlapped=0), "only 0 exp2"),
        (dict(UTMALDG=0), "no TMA"),
        (dict(LDSM=8), "stays in registers"),
    ],
)
def test_what_is_wrong_with_a_kernel_is_said(changes, says):
    counts = dict(HGMMA=64, WARPGROUP=16, UTMALDG=6, UTMASTG=2, USETMAXREG=8, overlapped=128)
    report = gate.Report("forward_kernel", 90, 168, 0, 164_000, 0, counts)
    case = hopper_gate.Case(3, 128)
    assert hopper_gate.problems(case, report) == []
    own = {k: v for k, v in changes.items() if k in report._fields}
    (problem,) = hopper_gate.problems(case, report._replace(**own, counts=counts | changes))
    assert says in problem


def test_threads_of_three_consumers_have_128_registers_each_at_the_start():
    counts = dict(HGMMA=36, WARPGROUP=12, UTMALDG=9, UTMASTG=3, USETMAXREG=5)
    report = gate.Report("forward_kernel", 90, 128, 0, 148_000, 0, counts)
    case = hopper_gate.Case(5, 64)  # in the order one_by_one, where no exp2 stands under a product
    assert hopper_gate.problems(case, report) == []
    assert hopper_gate.problems(case, report._replace(registers=136)) == [
        "no reallocation: 136 registers for each of 512 threads"
    ]


def test_each_binary_that_step_5_can_choose_is_compiled():
    chosen = {
        (dim, causal is not None, hopper_host.config_for(dim, 5, causal, keys))
        for dim in (64, 128, 256)
        for causal in (None, "top-left")
        for keys in (1, 1024, hopper_host.SHORT, hopper_host.SHORT + 1, 10**6)
    }
    compiled = [case for case in hopper_gate.ALL if case.step == 5]
    for dtype in ("float16", "bfloat16"):
        assert {(c.dim, c.masked, c.config) for c in compiled if c.dtype == dtype} == chosen
    usual = {(c.dim, c.masked, c.config) for c in hopper_gate.USUAL if c.step == 5}
    assert usual == {one for one in chosen if one[0] != 256}  # 256: as step 3
