"""The traps of SDPA: each runs, in both languages, and what it prints is what came out."""

import pytest

import flashlab
from flashlab.dispatch import trap, traps
from flashlab.text import table


@pytest.fixture(autouse=True)
def english():
    flashlab.lang("en")
    yield
    flashlab.lang("en")


@pytest.fixture(scope="module")
def found():
    return {name: trap(name).values for name in traps()}


def test_there_are_thirteen_and_each_has_its_words_in_both_languages():
    assert len(traps()) == 13
    assert set(traps()) == set(table("dispatch", "en")["trap"]) == set(table("dispatch", "zh")["trap"])


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_trap_prints_its_values_in_text_and_html(found, language):
    for name, values in found.items():
        words = table("dispatch", language)["trap"][name]
        lines = [line.format(**values) for line in words["shown"]]
        used = {part for line in words["shown"] for part in values if "{" + part + "}" in line}
        assert used == set(values), f"{name} computes {set(values) - used} and does not show it"
        assert len(lines) >= 2 and words["title"] and words["lesson"]
    flashlab.lang(language)
    shown = trap("not_4d")
    assert shown.title in repr(shown) and shown.lines[0] in repr(shown)
    assert "<li>" in shown._repr_html_() and shown.title in shown._repr_html_()


def test_an_unknown_trap_lists_the_closest():
    with pytest.raises(ValueError, match="Did you mean 'causal_one_query'"):
        trap("causal_one_querry")


def test_one_causal_query_sees_the_first_key_only(found):
    values = found["causal_one_query"]
    assert float(values["first"]) == 0 and float(values["right"]) == 0 and float(values["off"]) > 0.1


def test_the_list_of_sdpa_kernel_orders_nothing_on_the_cpu(found):
    values = found["kernel_list_order"]
    assert values["plain"] == values["priority"] == "flash"
    assert (values["list_plain"], values["list_priority"]) == ("flash > efficient", "math > flash")


def test_masks_keep_flash_on_the_cpu_unless_they_learn_or_have_three_axes(found):
    values = found["masks"]
    assert [values[k] for k in ("bool", "float", "three", "learned")] == ["flash", "flash", "math", "math"]
    assert values["h200"] == "cudnn" and "non-null attn_mask" in values["flash"]


def test_a_row_hidden_by_the_smallest_float_is_an_average_of_v(found):
    assert found["masked_rows"]["bool"] == "0" and float(found["masked_rows"]["mean"]) < 1e-6


def test_on_hopper_a_row_hidden_by_a_bool_mask_is_no_zero_as_the_record_has_it(found):
    values = found["masked_rows"]
    assert (values["h200"], values["h200_bool"], values["h200_float"]) == ("cudnn", "some average", "zeros")


def test_on_hopper_cudnn_is_first_and_alone_in_using_its_matrix_instruction(found):
    values = found["cudnn_first"]
    assert values["hopper"].startswith("cudnn > flash > efficient > math")
    assert "sm90" in values["cudnn"] and "wgmma" in values["cudnn"]
    assert "wgmma" not in values["flash"] + values["efficient"] and values["efficient"].endswith("sm80")


def test_math_multiplies_bf16_in_fp32_without_tensor_cores(found):
    values = found["fp32"]
    assert (values["h200"], values["half"]) == ("efficient", "cudnn")
    assert values["product"] == "sm80_xmma_gemm_f32f32_f32f32_f32…_ffma…"


def test_two_versions_of_torch_give_two_backends(found):
    values = found["versions"]
    assert (values["tenth"], values["tenth_newer"]) == ("cudnn", "flash")
    assert (values["large"], values["large_newer"]) == ("cudnn", "cudnn or flash")
    assert values["eighth"] == values["eighth_newer"] == "cudnn"


def test_heads_of_a_group_stand_side_by_side(found):
    values = found["gqa_without_flag"]
    assert float(values["interleave"]) < 1e-6 < 0.1 < float(values["repeat"])
    assert (values["one"], values["one_flagged"]) == ("math", "flash") and "must match" in values["error"]
    assert [values[f"h200_{name}"] for name in ("one", "flagged", "fp32")] == ["math", "cudnn", "math"]


def test_gradients_change_the_choice_for_a_learned_bias_and_on_consumer_chips(found):
    values = found["requires_grad"]
    assert (values["with"], values["bias"], values["learned"]) == ("flash", "flash", "math")
    assert (values["consumer"], values["consumer_grad"]) == ("flash", "efficient")
    assert values["changed"] == 0 and values["pairs"] > 800
    assert (values["h200_bias"], values["h200_learned"]) == ("cudnn", "efficient")


def test_multihead_attention_calls_sdpa_only_without_weights(found):
    values = found["need_weights"]
    assert set(values["default"].split(", ")) == {"aten::bmm", "aten::_softmax"}
    assert "scaled_dot_product_flash_attention" in values["without"]
    assert values["eval"] == "aten::_native_multi_head_attention"


def test_no_trap_writes_anything_but_what_it_returns(capfd):
    for name in traps():
        trap(name)
    assert capfd.readouterr() == ("", "")


def test_dropout_is_applied_whatever_the_mode_and_mask_with_causal_depends_on_the_backend(found):
    assert float(found["dropout_in_eval"]["gap"]) > 0.1
    assert (
        float(found["mask_and_causal"]["gap"]) == 0 and "is_causal=True" in found["mask_and_causal"]["error"]
    )
    assert (found["not_4d"]["three"], found["not_4d"]["four"]) == ("math", "flash")
