"""The budget of a tile: against Triton's compiler, against the browser's arithmetic, and what is refused."""

import dataclasses
import json
import random
import subprocess

import pytest
from test_softmax_stepper import node

import flashlab
from flashlab import gpus, tile_budget
from flashlab.text import table
from flashlab.tile_budget import BLOCKS, STAGES
from flashlab.tile_budget import tile_budget as budget
from flashlab.widgets import _base
from flashlab.widgets.tile_budget import TileBudget, facts


def in_node(expression, given, source="budget_numbers.js"):
    """The JSON value of a JavaScript `expression`: `js` is the module, `given` the input."""
    program = (
        'const fs = await import("node:fs");'
        'const source = fs.readFileSync(process.argv[1], "utf8");'
        'const js = await import("data:text/javascript;base64," + Buffer.from(source).toString("base64"));'
        'const given = JSON.parse(fs.readFileSync(0, "utf8"));'
        f"console.log(JSON.stringify({expression}))"
    )
    done = subprocess.run(
        [node(), "--input-type=module", "-e", program, str(_base._HERE / source)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_javascript_and_python_agree_on_random_tiles_on_every_gpu():
    rng, cases = random.Random(4), []
    few = dataclasses.replace(gpus.get("H200"), name="few threads", max_threads_per_sm=512)
    for gpu in [*gpus.ALL.values(), few]:
        for _ in range(60):
            how = dict(
                block_q=rng.choice(BLOCKS), block_k=rng.choice(BLOCKS), head_dim=rng.randint(1, 256),
                itemsize=rng.choice([2, 4]), warps=rng.choice([1, 2, 4, 8, 16]), stages=rng.choice(STAGES),
                n=rng.randint(1, 200_000),
            )  # fmt: skip
            cases.append((gpu, how))
    names = {"block_q": "blockQ", "block_k": "blockK", "head_dim": "headDim"}
    given = [[facts(g), {names.get(k, k): x for k, x in how.items()}] for g, how in cases]
    seen = set()
    for (gpu, how), got in zip(cases, in_node("given.map((g) => js.tileBudget(...g))", given), strict=True):
        want = budget(gpu, **how)
        assert got["sharedBytes"] == want.shared_bytes and got["perThread"] == want.registers_per_thread
        for name in ("shared", "registers", "limits", "programs", "status", "binds", "moved"):
            assert got[name] == getattr(want, name), (gpu.name, how, name)
        seen.add((want.status, want.binds))
    assert {status for status, _ in seen} == {"fits", "spills", "too big"}
    assert {binds for _, binds in seen} == {"shared", "registers", "threads"}


def test_the_number_of_programs_is_that_of_the_gpu_model():
    for gpu in gpus.ALL.values():
        for block_q in (32, 64, 128):
            b = budget(gpu, block_q, 64, 64)
            if b.status == "fits":
                assert b.programs == gpu.residents(4, b.registers_per_thread, b.shared_bytes)[0]


# (D, Br, Bc, warps, stages): (registers, bytes of shared memory), compiled by Triton 3.7.1 for 9.0
# with TMA, fp16, no mask
HOPPER = {
    (64, 64, 128, 4, 2): (154, 73760),
    (64, 128, 128, 8, 2): (156, 81952),
    (128, 128, 128, 8, 2): (188, 163872),
    (128, 128, 128, 8, 3): (188, 229432),
    (128, 128, 64, 4, 2): (255, 98336),
    (128, 64, 64, 4, 3): (140, 114744),
    (256, 128, 64, 8, 2): (202, 196640),
    (64, 64, 64, 4, 1): (None, 16392),
    (128, 128, 128, 8, 1): (None, 65544),
}
AMPERE = {  # the same for 8.0
    (64, 128, 64, 4, 3): (250, 49152),
    (128, 128, 64, 8, 2): (197, 65536),
    (256, 64, 32, 8, 2): (175, 69632),
    (128, 64, 64, 4, 2): (168, 57344),
    (64, 64, 64, 4, 2): (167, 24576),
    (64, 64, 64, 4, 1): (176, 16384),
}


@pytest.mark.parametrize("tile", HOPPER, ids=str)
def test_on_hopper_the_model_is_what_the_compiler_used(tile):
    dim, block_q, block_k, warps, stages = tile
    b = budget("H200", block_q, block_k, dim, warps=warps, stages=stages)
    registers, shared = HOPPER[tile]
    assert 0 <= shared - b.shared_bytes <= 64  # barriers
    assert registers is None or abs(b.registers_per_thread - registers) <= 8


@pytest.mark.parametrize("tile", AMPERE, ids=str)
def test_on_ampere_the_model_is_near_what_the_compiler_used(tile):
    dim, block_q, block_k, warps, stages = tile
    b = budget("A100-80", block_q, block_k, dim, warps=warps, stages=stages)
    registers, shared = AMPERE[tile]
    assert 0 <= shared - b.shared_bytes <= 8192  # P on its way to another layout
    assert abs(b.registers_per_thread - registers) <= 40


def test_the_compiler_still_uses_what_the_table_above_says():
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from flashlab.kernels import fa2, gate
    from flashlab.kernels.launch import Config

    q = torch.empty(1, 4, 512, 128, dtype=torch.float16)
    config = Config(128, 64, 8, 3, tma=True)
    (report,) = gate.compile_calls(lambda: fa2.forward(q, q, q, scale=0.1, config=config), 90)
    b = budget("H200", 128, 64, 128, warps=8, stages=3)
    assert 0 <= report.shared - b.shared_bytes <= 64
    assert abs(report.registers - b.registers_per_thread) <= 8


def test_every_shipped_configuration_fits_its_gpu_and_the_model_says_so():
    for gpu in gpus.ALL.values():
        for dim in (64, 128, 256):
            for name, c in tile_budget.shipped(gpu, dim):
                b = budget(gpu, c.block_q, c.block_k, dim, warps=c.num_warps, stages=c.num_stages)
                assert b.status == "fits", (gpu.name, dim, name)
    assert tile_budget.shipped(gpus.get("T4"), 64) == []


def test_bytes_moved_depend_on_the_query_block_only_and_halve_with_twice_its_rows():
    a, b, c = (budget("H200", r, k, 128, n=8192).moved for r, k in ((64, 64), (64, 128), (128, 64)))
    assert a == b
    own = 2 * 2 * 8192 * 128 + 4 * 8192  # Q, O and lse move once
    assert (a - own) == 2 * (c - own) == 2 * 2 * 8192 * 128 * (8192 // 64)


def test_bytes_moved_are_those_of_the_traffic_model():
    memory = pytest.importorskip("flashlab.memory")
    for n, block_q, dim in ((1024, 64, 64), (1000, 128, 96), (4096, 128, 128)):
        problem = flashlab.Problem(Nq=n, D=dim, block_q=block_q, block_k=64)
        assert budget("H200", block_q, 64, dim, n=n).moved == memory.traffic(problem, "fa2").bytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"block_q": 0}, "expected block_q to be a whole number >= 16, got 0"),
        ({"block_k": 48}, "expected powers of two, got blocks 128 x 48"),
        ({"head_dim": 257}, "expected head_dim of at most 256"),
        ({"itemsize": 8}, "expected an itemsize of 2 .* got 8"),
        ({"n": 0}, "expected n to be a whole number >= 1, got 0"),
        ({"gpu": "H20"}, "unknown GPU 'H20'. Did you mean 'H200'"),
        ({"stages": True}, "expected stages to be a whole number"),
    ],
)
def test_what_cannot_be_is_refused_and_becomes_a_sentence_in_the_widget(change, words):
    good = dict(gpu="H200", block_q=128, block_k=64, head_dim=128)
    with pytest.raises(ValueError, match=words):
        budget(**{**good, **change})


@pytest.mark.parametrize(
    ("problem", "gpu", "words"),
    [
        (dict(Nq=0), "H200", "got 0"),
        (dict(D=300), "H200", "at most 256"),
        (dict(dtype="float64"), "H200", "itemsize"),
        (dict(), "H20", "unknown GPU 'H20'"),
        (dict(block_q=48), "T4", "powers of two"),
    ],
)
def test_a_problem_that_does_not_fit_opens_as_a_sentence(problem, gpu, words):
    widget = TileBudget.of(flashlab.Problem(**problem), gpu=gpu)
    assert words in widget.error and widget.summary() == widget.error
    json.dumps(_base.twin_state(widget))


def test_something_that_is_no_problem_opens_as_a_sentence_too():
    assert TileBudget.of("a problem").error


def test_the_shipped_configuration_is_chosen_at_the_start():
    problem = flashlab.Problem(Nq=8192, D=128)
    plain, causal = TileBudget.of(problem), TileBudget.of(dataclasses.replace(problem, causal=True))
    assert (plain.block_q, plain.block_k, plain.warps, plain.stages) == (128, 64, 4, 2)
    assert (causal.block_q, causal.block_k, causal.warps, causal.stages) == (128, 128, 8, 3)
    assert ["forward", 128, 128, 8, 3] in plain.shipped["H200 2 128"]


def test_a_gpu_of_one_s_own_is_one_of_the_choices():
    mine = dataclasses.replace(gpus.get("H200"), name="mine", shared_per_program=64 * 1024)
    widget = TileBudget.of(flashlab.Problem(D=128, Nq=1024), gpu=mine, block_q=128, block_k=128)
    assert widget.gpu == "mine" and widget.gpus[-1]["name"] == "mine"


TITLE = "given.map(([g, o]) => js.budgetTitle(g, o, js.tileBudget(g, o), {strings}))"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_title_states_the_finding_with_numbers(language):
    o = dict(blockQ=128, blockK=64, headDim=128, itemsize=2, warps=4, stages=2, n=4096)
    changes = ({}, {"warps": 8, "stages": 3}, {"blockQ": 256}, {"blockK": 256, "stages": 3})
    given = [[facts(gpus.get("H200")), o | change] for change in changes]
    two, one, spills, big = in_node(TITLE.replace("{strings}", json.dumps(table("budget", language))), given)
    assert "2" in two and "69.2 MB" in two and "96 KB" in two
    assert "128 " in one and "227 KB" in one
    assert "476" in spills and "255" in spills
    assert "416 KB" in big and "227 KB" in big
    for title in (two, one, spills, big):
        assert "{" not in title and "undefined" not in title


def test_the_twin_is_small_and_asks_for_no_address():
    page = _base.twin_html(TileBudget.of(flashlab.Problem(D=64, Nq=1024), gpu="A100-80"))
    assert len(page) < 120_000 and "https://" not in page
