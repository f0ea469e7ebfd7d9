"""MemoryMap's numbers: the same in JavaScript as in Python; where a GPU's memory ends; what it refuses."""

import json
import random
from dataclasses import replace

import pytest
from widget_cases import in_node, problems

import flashlab
from flashlab import Problem, gpus, memory
from flashlab import needs as model
from flashlab.text import table
from flashlab.widgets import MemoryMap, _base
from flashlab.widgets.sizes import sizes

FILES = ["quantities.js", "memory_numbers.js"]
SAME = {"standard": "standard", "fa": "fa2"}  # JavaScript's name -> Python's


def needs(cases):
    """[(problem, algorithm, options)] -> [{name: (bytes, during)}] from JavaScript."""
    given = [[sizes(p), a, o] for p, a, o in cases]
    return [
        {part["name"]: (part["bytes"], part["during"]) for part in parts}
        for parts in in_node(FILES, "given.map((g) => js.needs(...g))", given)
    ]


def options(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        yield dict(layers=rng.randint(1, 40), dropout=rng.choice([0, 0.1]), training=rng.random() < 0.6)


def cases(count, seed):
    for p, o in zip(problems(count, seed), options(count, seed), strict=True):
        for a in SAME:
            yield p, a, o


def test_javascript_needs_what_python_needs_tensor_by_tensor():
    given = list(cases(60, seed=1))
    for (p, a, o), got in zip(given, needs(given), strict=True):
        assert got == model.needs(p, SAME[a], **o)


def test_what_is_kept_is_what_the_memory_model_keeps():
    for p, a, o in cases(30, seed=5):
        want = memory.kept(p, SAME[a], **o)
        if o["training"]:
            want.pop("s", None)  # gone before the backward pass, where the peak is
        got = {name: n for name, (n, when) in model.needs(p, SAME[a], **o).items() if name in want}
        assert got == want


def test_the_backward_pass_of_a_layer_needs_what_the_traffic_model_says():
    for p in problems(30, seed=2):
        for a in SAME.values():
            extra = memory.traffic(p, a, "backward").extra_bytes
            own = ("p", "dp", "ds") if a == "standard" else ("lse", "delta")
            assert sum(model.needs(p, a)[name][0] for name in own) == extra


def test_inference_keeps_the_cache_in_all_layers_and_the_rest_in_one():
    p = Problem(Hq=32, Hkv=8, Nq=1, Nk=8192, D=128)
    (got,) = needs([(p, "fa", dict(layers=32, dropout=0, training=False))])
    assert got["k_cache"][0] + got["v_cache"][0] == 2**30  # Llama-3-8B: 1 GiB for 8,192 tokens
    assert {name for name, part in got.items() if part[1] == "kept"} == {"k_cache", "v_cache"}


def test_the_largest_n_fits_and_one_token_more_does_not():
    given = [(replace(p, Nk=p.Nq), a, o) for p, a, o in cases(20, seed=3)]
    cards = random.Random(4).choices(list(gpus.ALL.values()), k=len(given))
    asked = [[sizes(p), a, o, card.hbm_bytes] for (p, a, o), card in zip(given, cards, strict=True)]
    found = in_node(FILES, "given.map((g) => js.largest(...g))", asked)
    around = [
        (replace(p, Nq=n + more, Nk=n + more), a, o)
        for (p, a, o), n in zip(given, found, strict=True)
        for more in (0, 1)
    ]
    assert min(found) > 0
    for (p, a, o), card, n in zip(given[:6], cards, found, strict=False):
        assert model.largest(p, SAME[a], card.hbm_bytes, **o) == n
    sums = [sum(size for size, _ in parts.values()) for parts in needs(around)]
    for card, at, after in zip(cards, sums[::2], sums[1::2], strict=True):
        assert at <= card.hbm_bytes < after


def test_without_square_attention_only_the_keys_grow():
    p = sizes(Problem(Nq=1, Nk=100))
    assert in_node(FILES, "js.at(given, 500)", p) == {**p, "Nk": 500}
    assert in_node(FILES, "js.at(given, 500).Nq", sizes(Problem(Nq=100))) == 500


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("js.bytes(412316860416)", "412 GB"),
        ("js.bytes(1610612736)", "1.61 GB"),
        ("js.bytes(999999)", "1 MB"),
        ("js.bytes(0)", "0 B"),
        ("js.bytes(7)", "7 B"),
        ("js.tokens(32768)", "32k"),
        ("js.tokens(1048576)", "1M"),
        ("js.tokens(1000)", "1,000"),
        ("js.seconds(0.00185)", "1.85 ms"),
        ("js.seconds(0.0000005)", "500 ns"),
        ("js.seconds(2.5)", "2.5 s"),
        ("js.short(2040.4)", "2,040"),
        ("js.short(0.987)", "0.99"),
        ("js.typed('32k', 1, 1e6)", 32768),
        ("js.typed('1,024', 1, 1e6)", 1024),
        ("js.typed('0', 1, 1e6)", None),
        ("js.typed('-3', 1, 1e6)", None),
        ("js.typed('many', 1, 1e6)", None),
        ("js.typed('2e3', 1, 1e6)", None),
        ("js.lengths(100, 128, 512)", [100, 128, 192, 256, 384, 512]),
    ],
)
def test_quantities_are_written_and_read_as_people_do(expression, shown):
    assert in_node(FILES, expression, None) == shown


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MemoryMap.of(Problem(), gpu="H20O"), "unknown GPU 'H20O'. Did you mean 'H200'"),
        (lambda: MemoryMap.of(Problem(Nq=0)), "expected at least one query and one key, got Nq = 0"),
        (lambda: MemoryMap.of("big"), "expected a flashlab.Problem, got str"),
        (lambda: MemoryMap.of(Problem(), layers=0), "expected layers to be a whole number from 1, got 0"),
        (lambda: MemoryMap.of(Problem(), dropout=1.5), "expected dropout from 0 to below 1, got 1.5"),
        (lambda: MemoryMap.of(Problem(), training="no"), "expected training to be True or False, got 'no'"),
        (lambda: MemoryMap.of(Problem(), layer=2), "MemoryMap.of takes no layer"),
    ],
)
def test_input_that_does_not_fit_gives_a_sentence_in_the_widget(make, words):
    widget = make()
    assert words in widget.error and widget.error in widget.summary()


def test_a_gpu_of_one_s_own_is_one_more_choice():
    mine = replace(gpus.get("H200"), name="mine", hbm_bytes=10**9)
    widget = MemoryMap.of(Problem(), gpu=mine)
    assert widget.gpu == "mine" and [c["name"] for c in widget.gpus] == [*gpus.ALL, "mine"]
    assert widget.gpus[-1]["hbm_bytes"] == 10**9


def test_the_state_is_plain_json_and_the_twin_is_small():
    widget = MemoryMap.of(Problem(), layers=6)
    json.dumps(_base.twin_state(widget), allow_nan=False)
    page = _base.twin_document(widget)
    assert len(page) < 80_000 and "https://" not in page.replace("https://www.w3.org", "")


def test_the_strings_follow_the_chosen_language(monkeypatch):
    monkeypatch.setattr("flashlab.text._chosen", None)
    flashlab.lang("zh")
    assert MemoryMap.of(Problem()).strings["training"] == "训练"
    assert table("memory_map", "en").keys() == table("memory_map", "zh").keys()
