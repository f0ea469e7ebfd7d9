"""DispatchDetective without a browser: what Python answers, and that the packed ones are the same."""

import json
import random

import pytest
from widget_cases import in_node

import flashlab
from flashlab.dispatch import Call, explain
from flashlab.dispatch.grid import AXES, grid
from flashlab.text import table
from flashlab.widgets import DispatchDetective, _base
from flashlab.widgets.dispatch_detective import packed_grid, shown

FILES = ["dispatch_detective.js"]


@pytest.fixture(autouse=True)
def english():
    flashlab.lang("en")
    yield
    flashlab.lang("en")


@pytest.fixture(scope="module")
def packed():
    return packed_grid()


def test_python_answers_what_the_browser_asks_and_follows_it():
    widget = DispatchDetective.of()
    assert widget.answer["choice"] == "flash" and widget.offline == {}
    call = Call(Nq=8, dropout_p=0.1).fields()
    widget.asked = {"call": call, "device": "cpu", "n": 7}
    assert (widget.answer["n"], widget.answer["choice"], widget.call) == (7, "math", call)
    assert [row["backend"] for row in widget.answer["rows"]] == ["flash", "math"]


def test_what_is_no_call_becomes_a_sentence_and_changes_nothing():
    widget = DispatchDetective.of()
    before = widget.call
    widget.asked = {"call": {**before, "Nq": 0}, "device": "cpu", "n": 1}
    assert "Nq to be a whole number" in widget.answer["error"] and widget.call == before
    assert "unknown mask" in DispatchDetective.of(mask="casual").error


def test_the_packed_answers_are_the_ones_that_python_gives(packed):
    axes, offline = packed
    assert dict(map(tuple, axes)) == {name: list(choices) for name, choices in AXES.items()}
    calls = random.Random(1).sample(grid(), 40)
    given = [axes, offline, [c.fields() for c in calls]]
    for device in ("cpu", "cuda"):
        found = in_node(FILES, f"given[2].map((c) => js.lookUp(given[0], given[1].{device}, c))", given)
        for call, answer in zip(calls, found, strict=True):
            assert answer == json.loads(json.dumps(shown(explain(call, device=device)))), call


def test_a_call_outside_the_grid_has_no_packed_answer(packed):
    axes, offline = packed
    outside = Call(D=65, Hq=8, Nq=1024).fields()
    assert in_node(FILES, "js.lookUp(given[0], given[1].cpu, given[2])", [axes, offline, outside]) is None


def test_the_call_is_shown_as_python_that_runs_and_asks_for_the_same():
    import torch

    from flashlab.dispatch.ask import ask_tensors

    calls = [
        Call(B=2, Hq=4, Hkv=2, Nq=3, Nk=5, D=8, dtype="float32", enable_gqa=True, requires_grad=True),
        Call(Hq=2, Nq=4, D=8, mask="learned", dtype="float32", dropout_p=0.5),
        Call(Hq=2, Nq=4, D=8, mask="bool", masked_rows=True, dropout_p=0.5, training=False, dtype="float64"),
        Call(Hq=2, Nq=4, D=8, mask="causal", dtype="bfloat16"),
    ]
    texts = in_node(FILES, "given.map((c) => js.asPython(c))", [c.fields() for c in calls])
    for call, text in zip(calls, texts, strict=True):
        *lines, last = text.split("\n")
        names = {"torch": torch, "scaled_dot_product_attention": lambda *args, **options: (args, options)}
        exec("\n".join(lines), names)
        args, options = eval(last, names)
        assert ask_tensors(*args, **options).choice == explain(call).choice
        assert [x.shape for x in args] == [x.shape for x in call.arguments("cpu")[:3]]
        assert args[0].requires_grad == call.requires_grad and str(args[0].dtype) == f"torch.{call.dtype}"
        assert options.get("dropout_p", 0.0) == call.dropout


def test_a_guess_is_right_if_it_ran_raised_or_is_one_of_the_open_ones():
    answers = [
        ({"choice": "math", "refused": "", "candidates": []}, ["math"]),
        ({"choice": "math", "refused": "Error", "candidates": []}, ["error"]),
        ({"choice": None, "refused": "", "candidates": ["cudnn", "flash"]}, ["cudnn", "flash"]),
    ]
    guesses = ["cudnn", "flash", "efficient", "math", "error"]
    given = [[a for a, _ in answers], guesses]
    found = in_node(FILES, "given[0].map((a) => given[1].filter((g) => js.rightGuess(a, g)))", given)
    assert found == [right for _, right in answers]


def test_the_twin_is_small_says_when_it_was_asked_and_asks_for_no_address(packed, monkeypatch):
    monkeypatch.setattr("flashlab.widgets.dispatch_detective.packed_grid", lambda: packed)
    page = _base.twin_html(DispatchDetective.of(offline=True))
    assert (
        len(page) < 160_000
        and "https://" not in page
        and "Asked here: torch" in page
        and "Recorded, not run here" in page
    )


def test_the_words_are_the_same_in_both_languages():
    english, chinese = table("detective", "en"), table("detective", "zh")
    assert set(english) == set(chinese)
