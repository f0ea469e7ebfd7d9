"""The record of an H200: the rules say the same about every call, and its compact form loses nothing."""

import json
from collections import Counter

import pytest

from flashlab.bench import compact, dispatch, recorded
from flashlab.bench.__main__ import as_text
from flashlab.dispatch import BACKENDS, Call, answer, explain
from flashlab.dispatch.grid import calls
from flashlab.dispatch.rules import from_source

LONG = {  # names as the profiler gives them, cut in the middle -> the short one
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64": None,
    "void cudnn::fusion::compute_dot_do_o_specialized<false, 64>(void const*, void*)": (
        "cudnn::fusion::compute_dot_do_o_specialized"
    ),
    "void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 128, 128, 8> >(int)": (
        "pytorch_flash::flash_bwd_dot_do_o_kernel<64, 128, 128>"
    ),
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)": (
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80"
    ),
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nt_align1>(cutlass_80::Params)": (
        "cutlass_80_simt_sgemm_64x64_8x5_nt_align1"
    ),
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(float)": (
        "internal::gemvx::kernel"
    ),
    "void (anonymous namespace)::softmax_warp_forward<float, float>(float*)": "softmax_warp_forward",
}


@pytest.fixture(scope="module")
def record():
    return recorded("dispatch")[0]


@pytest.fixture(scope="module")
def rows(record):
    return [compact.expand(row, record) for row in record["rows"]]


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(answer, "has_cuda", lambda: False)


def test_the_record_holds_every_call_of_the_grid_and_each_has_an_answer(record):
    assert [Call(**row["call"]) for row in record["rows"]] == calls()
    assert not record.get("stopped") and not any("error" in row for row in record["rows"])


def test_the_rules_of_the_version_that_was_recorded_agree_with_every_row(rows, record):
    assert record["provenance"]["torch"].startswith("2.11")
    differ = Counter()
    for row in rows:
        found = answer.from_row(row, record["provenance"])
        read = from_source(found.call, "H200", "2.11")
        differ["choice"] += read.choice != found.choice
        differ["order"] += read.order != found.order[: len(read.order)]
        differ["refused"] += bool(read.refused) != bool(found.refused)
        for backend in BACKENDS:
            ours, theirs = read.verdict(backend), found.verdict(backend)
            keys = (
                ("silent",) if ours.keys == ("learned_mask",) else ours.keys
            )  # PyTorch gives no reason there
            differ[backend] += (ours.can, keys) != (theirs.can, theirs.keys)
    assert +differ == {}


def test_newer_rules_differ_from_the_record_in_cudnns_dropout_and_head_sizes_only(rows):
    differ = Counter()
    for row in rows:
        call = Call(**row["call"])
        if from_source(call).choice != row["choice"]:
            assert row["choice"] == "cudnn"
            differ["dropout" if call.dropout else "head size" if call.D > 128 else "other"] += 1
    assert set(differ) == {"dropout", "head size"}


def test_a_recorded_answer_says_where_it_ran_and_what_a_newer_version_would_do(no_gpu):
    found = explain(device="cuda", dropout_p=0.1, D=128)
    assert found.basis == "recorded" and "NVIDIA H200, torch 2.11" in found.headline()
    assert "By the source of torch 2.13 (not run) it would be flash." in found.notes
    assert not any("2.13" in note for note in explain(device="cuda").notes)
    outside = explain(device="cuda", dropout_p=0.1, Nq=77)
    assert (outside.basis, outside.choice) == ("rules", "flash")
    assert "By the source of torch 2.11 (not run) it would be cudnn." in outside.notes


def test_grouped_heads_are_no_matter_of_the_flag_for_the_memory_efficient_kernel(no_gpu):
    found = explain(device="cuda", Hkv=2, enable_gqa=True, dtype="float32")
    assert found.choice == "math" and found.verdict("efficient").keys == ("heads_efficient",)
    assert found.verdict("efficient").reasons[0].startswith("For dense input, both fused kernels")


def test_each_choice_is_borne_out_by_the_kernels_that_ran(rows):
    marks = {"cudnn": "cudnn", "flash": "pytorch_flash::", "efficient": "fmha_cutlass", "math": "softmax"}
    for row in rows:
        if "refused" in row:
            assert "kernels" not in row
            continue
        parts = row["kernels"]
        assert any(marks[row["choice"]] in name for name in parts["forward"]), row
        assert ("backward" in parts) == row["call"].get("requires_grad", False)


def test_kernels_have_short_names_and_copies_fills_and_sums_are_left_out():
    for name, short in LONG.items():
        assert compact.short_name(name) == (short or name)
    other = [
        "void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor<float> >(int)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)",
        "at::cuda::philox::unpack_cudnn(at::PhiloxCudaState, long*, long*)",
    ]
    parts = compact.parts([*LONG, *other], trained=True)
    assert sorted(sum(parts.values(), [])) == sorted(short or name for name, short in LONG.items())
    assert (len(parts["forward"]), len(parts["backward"]), len(parts["either"])) == (3, 2, 2)
    assert "either" not in compact.parts([name for name in LONG if "bwd" not in name], trained=False)


def test_what_the_suite_writes_now_is_the_form_of_the_record_and_is_read_back_whole(record):
    small = dict(Nq=8, D=8, Hq=4, dtype="float32")
    asked = [Call(**small), Call(**small, dropout_p=0.1, requires_grad=True), Call(**small, Hkv=2)]
    asked += [Call(**small, mask="bool", masked_rows=True), Call(**small)]
    full = list(dispatch.run(asked, device="cpu", say=lambda line: None))
    tables = compact.new_tables()
    rows = list(dispatch.run(asked, device="cpu", tables=tables, say=lambda line: None))
    about = {"suite": "dispatch", "provenance": {}, "device": "cpu", "tables": tables}
    written = json.loads(as_text(about | {"rows": rows}))
    assert set(written) == set(record) - {"file"} and set(tables) == set(record["tables"])
    names = {name for row in record["rows"] for name in row}
    assert {name for row in rows for name in row} <= names
    for row, before in zip(written["rows"], full, strict=True):
        kept = compact.parts(before["kernels"], False) if "kernels" in before else None
        assert compact.expand(row, written) == before | ({} if kept is None else {"kernels": kept})
    assert all(isinstance(row[name], int) for row in rows for name in compact.REPEATED if name in row)
    assert len(tables["order"]) == 1 and len(tables["no"]) == 3


def test_the_tables_of_the_record_hold_nothing_twice_and_nothing_that_is_not_used(record):
    for name, table in record["tables"].items():
        used = {row[name] for row in record["rows"] if name in row}
        assert used == set(range(len(table)))
        assert len({json.dumps(value) for value in table}) == len(table)


def test_the_suite_says_a_line_for_each_dtype_and_mask_and_one_for_all():
    said = []
    small, one = dict(Nq=8, D=8, Hq=4), dict(Nq=1, Nk=1024)
    which = [Call(**small), Call(**small, dropout_p=0.1), Call(**small, mask="bool"), Call(**one)]
    which += [Call(**one, Hkv=2), Call(**one, mask="bool")]
    list(dispatch.run(which, device="cpu", say=said.append))
    assert said == [
        "single calls               3 calls: flash 2, math 1",
        "float16   mask=none        2 calls: flash 1, raises 1",
        "float16   mask=bool        1 calls: flash 1",
        "in all on cpu              6 calls: flash 4, math 1, raises 1",
    ]
