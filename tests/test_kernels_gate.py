"""The kernels as machine code for a GPU, compiled here without one: no spills, the load pipeline is there,
and the numbers are those on record. FLASHLAB_GATE=all takes every shipped configuration.
"""

import os

import pytest

pytest.importorskip("triton")
import torch
import triton

from flashlab.kernels import fa2, fa2_backward, gate, golden, launch, shipped

pytestmark = pytest.mark.gate

# Which cases a plain run takes: Hopper in fp16, of which H200 numbers are recorded, and elsewhere what needs
# the most registers and shared memory. All others: FLASHLAB_GATE=all.
BACKWARD = [
    shipped.Case(arch, "float16", dim, direction)
    for arch in (80, 89, 100, 120)
    for dim in (64, 128)
    for direction in ("dkdv", "dq")
]
FORWARD = [shipped.Case(arch, "float16", 128, "forward") for arch in (80, 89, 100, 120)]
USUAL = shipped.cases(90, "float16") + BACKWARD + FORWARD
CASES = shipped.cases() if os.environ.get("FLASHLAB_GATE") == "all" else USUAL


@pytest.fixture(scope="module")
def reports():
    """Each case's Report, compiled by two processes."""
    return dict(zip(CASES, gate.compile_cases(CASES), strict=True))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_shipped_kernel_fits_loads_ahead_and_has_the_instructions_on_record(case, reports):
    recorded = golden.load(triton.__version__)
    if recorded:
        assert gate.problems(case, reports[case], recorded.get(str(case))) == []
    else:  # another version of Triton: nothing to compare with
        assert gate.problems(case, reports[case], golden.row(reports[case])) == []


def may_not_spill(case):
    """16-bit forward, and 16-bit backward with head dims up to 128. What else spills is on record."""
    backward = case.direction.startswith(("dkdv", "dq")) and case.dim <= 128
    return case.dtype == "float16" and (case.direction.startswith("forward") or backward)


HOPPER = [
    case for case in shipped.cases(90, "float16") if case.direction.startswith(("forward", "dkdv", "dq"))
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", HOPPER, ids=str)
def test_on_hopper_nothing_spills_and_all_stages_of_the_pipeline_are_there(case, reports):
    report, config = reports[case], case.config
    assert report.spills == 0 or not may_not_spill(case)
    assert report.count("HGMMA") > 0, "no tensor core instructions"
    assert report.count("WARPGROUP") <= 16, "the tensor core instructions wait for each other"
    if not case.direction.endswith("packed"):
        two_tensors = config.num_stages * 2 * case.inner_rows * case.dim * 2  # of 2-byte elements come by
        assert report.shared >= two_tensors, "the pipeline's stages are not there"
        assert (report.count("UTMALDG") > 0) == config.tma


def test_what_is_recorded_has_no_spills_where_none_are_allowed():
    versions = sorted(path.stem for path in golden.FOLDER.glob("*.tsv"))
    assert versions == ["3.6.0", "3.7.1"]
    for version in versions:
        rows = golden.load(version)
        assert {str(case) for case in USUAL} <= set(rows) <= {str(case) for case in shipped.cases()}
        for case in (case for case in shipped.cases() if str(case) in rows):
            row = rows[str(case)]
            assert row["shared"] <= gate.SHARED_MEMORY[case.arch], case
            assert row["spills"] == 0 or not may_not_spill(case), (version, case)


@pytest.mark.parametrize("what", ["spills", "HGMMA", "WARPGROUP", "FFMA", "nothing recorded"])
def test_another_number_than_the_one_on_record_is_a_problem(what):
    case = shipped.Case(90, "float16", 64, "forward")
    counts = dict(HGMMA=24, WARPGROUP=8, MUFU=136, FFMA=92, LDGSTS=5, UTMALDG=5)
    report = gate.Report("forward_kernel", 90, 168, 0, 200_000, 2, counts)
    row = golden.row(report)
    assert gate.problems(case, report, row) == []
    if what == "nothing recorded":
        assert "nothing is recorded" in gate.problems(case, report, None)[0]
        return
    (problem,) = gate.problems(case, report, row | {what: row[what] + 10})
    assert problem.startswith(what)
    assert gate.problems(case, report, row | dict(FFMA=90, registers=170)) == []


def test_a_kernel_that_lost_its_pipeline_or_does_not_fit_is_a_problem():
    case = shipped.Case(90, "float16", 64, "forward")
    report = gate.Report("forward_kernel", 90, 168, 0, 200_000, 2, dict(UTMALDG=5))
    (problem,) = gate.problems(case, report._replace(counts={}), golden.row(report))
    assert "no load pipeline" in problem
    (problem,) = gate.problems(case, report._replace(shared=8192), golden.row(report))
    assert "no load pipeline" in problem
    (problem,) = gate.problems(case, report._replace(shared=240_000), golden.row(report))
    assert "shared memory" in problem


@pytest.mark.parametrize(("broken", "says"), [("nvdisasm", "machine code"), ("cuobjdump", "registers")])
def test_a_number_that_cannot_be_read_fails(broken, says, monkeypatch):
    tool = gate.tool
    monkeypatch.setattr(gate, "tool", lambda name, *args: "?" if name == broken else tool(name, *args))
    with pytest.raises(RuntimeError, match=f"the gate cannot read the {says}"):
        gate.compile_case(shipped.Case(90, "float16", 64, "dq"))


def test_instructions_are_read_from_a_listing():
    listing = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 STL.64 [R1+0x8], R2 ;
        /*0020*/             @UP0  UTMALDG.4D [UR8], [UR4] ;
        /*0030*/                   FFMA R3, R4, R5, -R6 ;
        /*0040*/                   STL [R1], R2 ;
        /*0050*/                   EXIT ;
    """
    counts = gate.instructions(listing)
    assert counts == dict(LDC=1, STL=2, UTMALDG=1, FFMA=1, EXIT=1)


def test_what_is_saved_is_loaded_again(tmp_path, monkeypatch):
    monkeypatch.setattr(golden, "FOLDER", tmp_path / "golden")
    rows = {"sm_90 a": dict(zip(golden.NUMBERS, range(9), strict=False))}
    golden.save("9.9", rows)
    assert golden.load("9.9") == rows and golden.load("9.8") == {}
    golden.path("9.9").write_text("case\tspills\n")
    with pytest.raises(ValueError, match="to begin with case, registers"):
        golden.load("9.9")


def test_tensors_that_tma_cannot_describe_compile_with_pointers():
    q = torch.empty(1, 4, 512, 129, dtype=torch.float16)[..., 1:]
    config = launch.table_config(90, 2, 128)
    (report,) = gate.compile_calls(lambda: fa2.forward(q, q, q, scale=0.1, config=config), 90)
    assert report.count("UTMALDG") == 0 and report.spills <= 4


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
