"""What the detective reads in PyTorch's source for CUDA without a GPU, and the recorder that replaces it."""

import pytest
import torch

from flashlab.dispatch import Call, explain
from flashlab.dispatch.grid import AXES, calls, grid, more
from flashlab.dispatch.rules import VERSIONS, from_source, order_on


def test_hopper_and_blackwell_try_cudnn_first_ampere_and_ada_flash():
    assert order_on((9, 0))[0] == order_on((10, 0))[0] == "cudnn"
    assert order_on((8, 0))[0] == order_on((8, 9))[0] == order_on((12, 0))[0] == "flash"
    assert order_on((9, 0), cudnn=(9, 15, 0))[0] == "flash"


@pytest.mark.parametrize(
    "gpu, fields, choice",
    [
        ("H200", {}, "cudnn"),
        ("A100-80", {}, "flash"),
        ("A100-80", {"mask": "bool"}, "efficient"),
        ("H200", {"mask": "bool"}, "cudnn"),
        ("H200", {"mask": "learned"}, "efficient"),
        ("H200", {"dtype": "float32"}, "efficient"),
        ("H200", {"dtype": "float64"}, "math"),
        ("H200", {"dropout_p": 0.1}, "flash"),
        ("H200", {"dropout_p": 0.125}, "cudnn"),
        ("H200", {"dropout_p": 0.125, "Nq": 1, "Nk": 64}, "flash"),
        ("H200", {"D": 100}, "flash"),
        ("H200", {"D": 512}, "efficient"),
        ("H200", {"D": 300, "mask": "bool"}, "math"),
        ("A100-80", {"Nq": 1, "Nk": 64, "mask": "causal"}, "efficient"),
        ("A100-80", {"Hkv": 2, "enable_gqa": True, "mask": "bool"}, "math"),
        ("A100-80", {"Hkv": 2, "enable_gqa": True}, "flash"),
        ("T4", {}, "efficient"),
        ("T4", {"dtype": "bfloat16"}, "math"),
        ("RTX 4090", {"D": 208, "requires_grad": True}, "efficient"),
        ("RTX 4090", {"D": 256, "requires_grad": True}, "flash"),
        ("RTX 4090", {"D": 256, "requires_grad": True, "dropout_p": 0.1}, "efficient"),
    ],
)
def test_the_first_backend_whose_checks_all_pass_is_the_choice(gpu, fields, choice):
    assert from_source(Call(**fields), gpu).choice == choice


def test_a_verdict_names_the_first_check_that_says_no():
    read = from_source(Call(mask="bool", dtype="float32", D=300))
    assert read.verdict("flash").check == "check_for_attn_mask"
    assert read.verdict("cudnn").check == "check_dtypes_low_precision"
    assert read.verdict("efficient").can is True


def test_what_was_not_settled_stays_open_and_is_no_choice():
    read = from_source(Call(D=256))
    assert read.choice is None and read.candidates == ("cudnn", "flash")
    assert read.verdict("cudnn").can is None and "depends on the version: cudnn or flash" in read.headline()
    assert from_source(Call(D=256), "A100-80").choice == "flash"


def test_2_11_takes_any_dropout_and_large_heads_on_hopper_to_cudnn():
    for fields in ({"D": 256}, {"D": 192, "requires_grad": True}, {"dropout_p": 0.1}):
        assert from_source(Call(**fields), "H200", "2.11").choice == "cudnn"
    assert from_source(Call(D=264), "H200", "2.11").choice == "efficient"
    assert from_source(Call(D=256), "B200", "2.11").choice == "flash"
    assert "as in 2.11" in from_source(Call(), "H200", "2.11").source


def test_an_error_of_the_math_path_is_had_by_running_it():
    read = from_source(Call(Hkv=2))
    assert read.choice == "math" and "must match the size" in read.refused


def test_the_two_devices_agree_on_the_reasons_that_they_share():
    for fields in ({"Hkv": 2}, {"Hkv": 1}):
        assert from_source(Call(**fields)).verdict("flash").keys == explain(**fields).verdict("flash").keys


def test_the_grid_is_the_product_of_its_axes_and_holds_no_call_twice():
    size = 1
    for choices in AXES.values():
        size *= len(choices)
    assert len(set(grid())) == len(grid()) == size
    assert len(set(calls())) == len(calls()) == size + len(more())
    assert set(calls(quick=True)) < set(calls())


def test_the_recorder_confirms_each_choice_by_the_operator_that_ran(monkeypatch):
    from flashlab.bench import dispatch

    small = dict(Nq=8, D=8, Hq=2, dtype="float32")
    asked = [Call(**small), Call(**small, dropout_p=0.1, requires_grad=True), Call(**small, Hkv=1)]
    asked += [Call(**small | {"Hq": 4, "Hkv": 2}), Call(**small, mask="bool", masked_rows=True)]
    rows = list(dispatch.run(asked, device="cpu", say=lambda line: None))
    assert [row["choice"] for row in rows] == ["flash", "math", "math", "math", "flash"]
    assert "refused" in rows[3] and rows[4]["masked_row"] == "zero"
    assert rows[1]["no"]["flash"] == ["Both fused kernels do not support non-zero dropout."]
    assert [Call(**row["call"]) for row in rows] == asked
    monkeypatch.setitem(dispatch.OPERATORS, "flash", "aten::another")
    wrong, right = dispatch.run([asked[0], asked[1]], device="cpu", say=lambda line: None)
    assert "PyTorch chose flash" in wrong["error"] and "the profiler saw" in wrong["error"]
    assert "choice" not in wrong and right["choice"] == "math"


def test_a_call_that_raises_only_when_it_runs_is_refused_and_the_others_go_on(monkeypatch):
    from flashlab.bench import dispatch

    def profiled(call, device, real=dispatch.profiled):
        if call.D == 16:
            raise RuntimeError("no plan\nfor this")
        return real(call, device)

    monkeypatch.setattr(dispatch, "profiled", profiled)
    which = [Call(Nq=8, D=d, Hq=2, dtype="float32") for d in (16, 8)]
    raised, right = dispatch.run(which, device="cpu", say=lambda line: None)
    assert raised["refused"] == "RuntimeError: no plan" and raised["choice"] == "flash"
    assert "kernels" not in raised and "refused" not in right


def test_a_record_made_by_the_recorder_is_read_back_as_it_was_asked():
    from flashlab.bench import compact, dispatch
    from flashlab.dispatch.answer import from_row

    call, tables = Call(Nq=8, D=8, Hq=2, dropout_p=0.1), compact.new_tables()
    (row,) = dispatch.run([call], device="cpu", tables=tables, say=lambda line: None)
    where = dict(gpu="g", torch=torch.__version__, cudnn=1, date="2030-01-01", command="c")
    row = compact.expand(row, {"device": "cpu", "tables": tables})
    read, asked = from_row(row, where), explain(call)
    assert (read.choice, read.order, read.verdicts, read.call) == (
        asked.choice,
        asked.order,
        asked.verdicts,
        call,
    )


@pytest.mark.gpu
@pytest.mark.parametrize("call", calls(quick=True), ids=str)
def test_on_a_gpu_pytorchs_answer_is_confirmed_and_the_rules_do_not_contradict_it(call):
    from flashlab.bench import dispatch

    (row,) = dispatch.run([call], say=lambda line: None)
    assert "error" not in row, row["error"]
    asked = explain(call, device="cuda")
    assert asked.basis == "asked" and asked.choice == row["choice"]
    assert all(v.can or v.keys != ("other",) for v in asked.verdicts)
    version = next((v for v in VERSIONS if torch.__version__.startswith(v)), None)
    if version and torch.cuda.get_device_capability() == (9, 0):
        assert row["choice"] in from_source(call, "H200", version).candidates
