"""The dispatch detective: PyTorch's own answers on this CPU, its words translated, three bases kept apart."""

import re
import warnings
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

import flashlab
from flashlab.dispatch import BACKENDS, Call, answer, explain, explain_tensors, words
from flashlab.text import table

SMALL = dict(Nq=16, D=8, Hq=4)


@pytest.fixture(autouse=True)
def english():
    flashlab.lang("en")
    yield
    flashlab.lang("en")


@pytest.fixture(autouse=True)
def no_record(monkeypatch):
    monkeypatch.setattr(answer, "index", dict)


def operators(call):
    """The attention operators that the profiler sees when the call is run."""
    from flashlab.bench.dispatch import profiled

    return profiled(call, "cpu")[0]


@pytest.mark.parametrize(
    "fields, choice",
    [
        ({}, "flash"),
        ({"dropout_p": 0.1}, "math"),
        ({"dropout_p": 0.1, "training": False}, "flash"),
        ({"mask": "bool"}, "flash"),
        ({"mask": "float", "dtype": "bfloat16"}, "flash"),
        ({"mask": "learned"}, "math"),
        ({"mask": "causal", "Nq": 1, "Nk": 16}, "flash"),
        ({"Hkv": 2, "enable_gqa": True}, "flash"),
        ({"Hkv": 1}, "math"),
        ({"requires_grad": True, "dtype": "float32"}, "flash"),
        ({"dtype": "float64"}, "flash"),
    ],
    ids=str,
)
def test_on_the_cpu_the_choice_is_the_operator_that_runs(fields, choice):
    call = Call(**(SMALL | fields))
    asked = explain(call)
    assert (asked.choice, asked.basis, asked.device) == (choice, "asked", "cpu")
    operator = {
        "flash": "aten::_scaled_dot_product_flash_attention_for_cpu",
        "math": "aten::_scaled_dot_product_attention_math",
    }
    assert operator[choice] in operators(call)


def test_the_reasons_are_pytorchs_own_words():
    verdict = explain(**SMALL, dropout_p=0.1).verdict("flash")
    assert verdict.can is False and verdict.reasons == (
        "Both fused kernels do not support non-zero dropout.",
    )
    q = torch.zeros(1, 4, 16, 8)
    with warnings.catch_warnings(record=True) as heard, sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError):
            sdpa(q, q, q, dropout_p=0.1)
    assert any(str(w.message).startswith(verdict.reasons[0]) for w in heard)


def test_a_backend_that_could_but_comes_later_is_told_from_one_that_cannot():
    asked = explain(**SMALL)
    assert [asked.verdict(b).can for b in BACKENDS] == [False, True, False, True]
    assert [row[:2] for row in asked.rows()[:2]] == [("flash", "runs"), ("math", "could, but comes later")]
    assert asked.verdict("cudnn").keys == asked.verdict("efficient").keys == ("not_here",)


def test_a_refusal_without_a_word_says_that_it_had_none():
    verdict = explain(**SMALL, mask="learned").verdict("flash")
    assert verdict.reasons == () and verdict.keys == ("silent",)


def test_a_call_that_is_chosen_and_then_raises_says_which_error():
    asked = explain(**SMALL, Hkv=2)
    assert asked.choice == "math" and "chosen, and then the call raises" in repr(asked)
    q, k, v, options = Call(**SMALL, Hkv=2).arguments("cpu")
    with pytest.raises(RuntimeError) as raised:
        sdpa(q, k, v, **options)
    assert str(raised.value).splitlines()[0] in asked.refused
    assert explain(**SMALL, Hkv=3, enable_gqa=True).refused and not explain(**SMALL, Hkv=1).refused


@pytest.mark.parametrize("mask", ["bool", "float"])
def test_what_a_row_that_sees_nothing_returns_is_computed(mask):
    assert "returns zeros (torch" in explain(**SMALL, mask=mask, masked_rows=True).notes[0]


def test_asking_changes_no_switch_and_shows_no_warning():
    before = torch._C._get_sdp_priority_order(), torch.backends.cuda.flash_sdp_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explain(**SMALL, dropout_p=0.1)
    assert (torch._C._get_sdp_priority_order(), torch.backends.cuda.flash_sdp_enabled()) == before
    assert torch.backends.cuda.math_sdp_enabled() and torch.backends.cuda.cudnn_sdp_enabled()


def test_any_length_is_asked_about_without_the_memory_for_it():
    assert explain(B=64, Hq=128, Nq=2**20, D=256, mask="bool").choice == "flash"


def test_ones_own_tensors_can_be_asked_about():
    q = torch.zeros(4, 16, 8)
    asked = explain_tensors(q, q, q)
    assert asked.choice == "math" and asked.verdict("flash").keys == ("not_4d",)
    columns = torch.zeros(1, 4, 8, 16).mT
    assert explain_tensors(columns, columns, columns).verdict("flash").keys == ("stride",)
    assert "q [4, 16, 8]" in repr(asked)
    with pytest.raises(ValueError, match="CPU or on CUDA, got meta"):
        explain_tensors(*[torch.zeros(1, 4, 16, 8, device="meta")] * 3)


def test_every_message_in_the_installed_header_has_a_sentence():
    header = Path(torch.__file__).parent / "include/ATen/native/transformers/sdp_utils_cpp.h"
    messages = re.findall(r"TORCH_WARN\(\s*\"([^\"]+)\"", header.read_text())
    assert len(messages) > 15
    assert [m for m in messages if words.key_of(m) == "other"] == []


def test_every_key_has_a_sentence_in_both_languages_and_none_is_left_over():
    from flashlab.dispatch import rules

    keys = {*words.PATTERNS.values(), "silent", "other", "open_dim_cudnn"}
    keys |= {key for of in rules.CHECKS.values() for checks in of.values() for _, key, _ in checks}
    for language in ("en", "zh"):
        assert set(table("dispatch", language)["reason"]) == keys


@pytest.mark.parametrize("language, words_", [("en", "no dropout"), ("zh", "不支持 dropout")])
def test_text_and_html_show_verdicts_words_and_basis_in_both_languages(language, words_):
    flashlab.lang(language)
    asked = explain(**SMALL, dropout_p=0.1)
    for shown in (repr(asked), asked._repr_html_()):
        assert words_ in shown and "Both fused kernels" in shown and torch.__version__ in shown
    assert "<caption" in asked._repr_html_() and 'scope="row"' in asked._repr_html_()


def test_cuda_without_a_gpu_and_a_record_says_so_and_reads_the_source():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    read = explain(device="cuda")
    assert read.basis == "rules" and "No H200 has been recorded yet" in repr(read)
    assert "not run" in read.headline() and "001f694a" in read.basis_line()
    assert all(v.reasons == () for v in read.verdicts)
    with pytest.raises(LookupError, match="No H200 has been recorded"):
        explain(device="cuda", basis="recorded")
    with pytest.raises(LookupError, match="no CUDA device"):
        explain(device="cuda", basis="asked")
    with pytest.raises(LookupError, match="always asked"):
        explain(basis="rules")
    flashlab.lang("zh")
    assert "假定 cuDNN" in explain(device="cuda").basis_line()


def test_a_recorded_call_is_answered_from_the_record_and_another_is_not(monkeypatch):
    row = {
        "device": "cuda",
        "call": Call(mask="bool").changed(),
        "choice": "cudnn",
        "order": ["cudnn", "flash", "efficient", "math"],
    }
    row |= {
        "no": {"flash": ["Flash Attention does not support non-null attn_mask."]},
        "kernels": {"forward": ["some_kernel"], "backward": ["another"]},
    }
    where = dict(gpu="H20", torch="9.9", cudnn=91900, date="2030-01-01T00:00", command="a command")
    monkeypatch.setattr(answer, "index", lambda: {Call(**row["call"]): (row, where)})
    monkeypatch.setattr(answer, "has_cuda", lambda: False)
    kept = explain(device="cuda", mask="bool")
    assert (kept.basis, kept.choice) == ("recorded", "cudnn")
    assert kept.verdict("flash").keys == ("mask_flash",) and kept.verdict("efficient").can
    assert kept.headline() == "cudnn ran on an H20, torch 9.9." and "cudnn      ran" in repr(kept)
    assert "Recorded, not run here: H20, torch 9.9, cuDNN 9.19.0, 2030-01-01, a command" in repr(kept)
    assert "Kernels, forward: some_kernel\n" in repr(kept) and "backward: another\n" in repr(kept)
    assert "<p>Kernels, forward: <code>some_kernel</code></p>" in kept._repr_html_()
    other = explain(device="cuda")
    assert other.basis == "rules" and "holds no such call" in repr(other)
    ampere = explain(device="cuda", mask="bool", gpu="A100-80")
    assert (ampere.basis, ampere.choice) == ("rules", "efficient") and "Only an H200" in repr(ampere)
    with pytest.raises(LookupError, match="Only an H200 is recorded"):
        explain(device="cuda", mask="bool", gpu="A100-80", basis="recorded")


HEARD_ON_CUDA = [  # torch 2.11 with flash alone allowed
    "Memory efficient kernel not used because:",
    "Memory Efficient attention has been runtime disabled.",
    "Flash attention kernel not used because:",
    "Flash Attention does not support non-null attn_mask.",
    "cuDNN attention kernel not used because:",
    "cuDNN attention has been runtime disabled.",
]


def test_on_cuda_each_backend_gets_the_reasons_below_its_own_heading(monkeypatch):
    from flashlab.dispatch import ask

    def choice_of(*call):
        for text in HEARD_ON_CUDA:
            warnings.warn(f"{text} (Triggered internally at /a/sdp_utils.cpp:1.)", stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.")

    monkeypatch.setattr(ask, "choice_of", choice_of)
    q, k, v, options = Call(**SMALL, mask="bool").arguments("cpu")
    verdict = ask._ask_cuda("flash", q, k, v, options)
    assert verdict.reasons == ("Flash Attention does not support non-null attn_mask.",)
    assert verdict.keys == ("mask_flash",) and verdict.can is False
    assert ask._ask_cuda("cudnn", q, k, v, options).keys == ("disabled",)
    with sdpa_kernel(SDPBackend.MATH):
        assert ask._ask_cuda("flash", q, k, v, options).keys == ("disabled",)
    monkeypatch.setattr(ask, "choice_of", lambda *call: "efficient")
    assert ask._ask_cuda("efficient", q, k, v, options).can is True


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"Nq": 0}, "Nq to be a whole number from 1 up, got 0"),
        ({"dtype": "float61"}, "unknown dtype 'float61'.*float16"),
        ({"mask": "casual"}, "unknown mask 'casual'.*causal"),
        ({"dropout_p": 1.0}, "dropout_p from 0 to below 1"),
        ({"masked_rows": True}, "masked_rows needs mask="),
        ({"enable_gqa": 1}, "enable_gqa to be True or False"),
        ({"device": "mps"}, "unknown device 'mps'"),
        ({"basis": "guess"}, "unknown basis 'guess'"),
        ({"head": 8}, "unknown field of a call 'head'.*Known: B, Hq"),
        ({"device": "cuda", "gpu": "H20"}, "unknown GPU 'H20'. Did you mean 'H200'"),
    ],
)
def test_what_is_no_call_is_a_value_error(fields, text):
    with pytest.raises(ValueError, match=text):
        explain(**fields)


def test_a_call_and_fields_together_are_refused():
    with pytest.raises(TypeError, match="not both: got a Call and Nq"):
        explain(Call(), Nq=4)
    with pytest.raises(TypeError, match="expected a flashlab.dispatch.Call, got dict"):
        explain({})
    with pytest.raises(TypeError, match="expected k as a PyTorch tensor, got list"):
        explain_tensors(torch.zeros(1, 1, 2, 8), [[1]], None)


def test_a_call_is_rebuilt_from_what_differs():
    for call in (Call(), Call(Hq=4), Call(Hkv=2, enable_gqa=True, Nq=1, Nk=7, mask="bool", masked_rows=True)):
        assert Call(**call.changed()) == call
