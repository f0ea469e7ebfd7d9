"""The suite `hopper` without a GPU: what hangs is stopped and not run again, what is wrong is said."""

import sys

import pytest

pytest.importorskip("triton")
import torch

from flashlab.bench import hopper
from flashlab.kernels import hopper_host
from flashlab.warpgroups.simulator import simulated


def test_a_variant_that_hangs_is_stopped_and_one_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(hopper, "STEPS", (1, 2, 3))
    monkeypatch.setattr(hopper, "DIMS", (64,))
    code = (
        "import sys, time\n"
        "if sys.argv[1] == '2': time.sleep(60)\n"
        "if sys.argv[1] == '3': raise AssertionError('o is off')\n"
    )
    rows = list(hopper.first_runs(patience=2, command=[sys.executable, "-c", code]))
    assert [row.get("error", "fine").split(":")[0] for row in rows] == [
        "fine",
        "no result after 2 s",
        "AssertionError",
    ]


def test_only_what_came_back_from_its_first_run_is_run_again(monkeypatch):
    tried = []
    rows = [dict(part="first", step=1, D=64, error="hangs"), dict(part="first", step=5, D=64)]
    monkeypatch.setattr(hopper, "first_runs", lambda *how: rows)
    monkeypatch.setattr(hopper, "right_runs", lambda sound, *how: tried.append({*sound}) or [])
    monkeypatch.setattr(hopper, "timed", lambda cases, peers, sound: tried.append({*sound}) or [])
    monkeypatch.setattr(hopper, "backward", lambda *how: [])
    said = []
    list(hopper.run([], say=said.append))
    assert tried == [{(5, 64)}] * 2
    assert "hangs" in said[0] and said[1].split()[-1] == "runs"


def test_what_hangs_on_a_larger_grid_keeps_its_rows_and_is_not_timed(monkeypatch):
    monkeypatch.setattr(hopper, "STEPS", (1, 2))
    monkeypatch.setattr(hopper, "DIMS", (64,))
    code = (
        "import json, sys, time\n"
        "step, dim, *words = sys.argv[1:]\n"
        "row = dict(part='right', step=int(step), D=64, dtype='float16', max_error=0.01)\n"
        "if words: print(json.dumps(row), flush=True)\n"
        "if words and step == '2': print('{\"half', end='', flush=True); time.sleep(60)\n"
    )
    timed = []
    monkeypatch.setattr(hopper, "timed", lambda cases, peers, sound: timed.append({*sound}) or [])
    monkeypatch.setattr(hopper, "backward", lambda *how: [])
    how = dict(patience=3, command=[sys.executable, "-c", code])
    rows = [row for row in hopper.run([], say=print, **how) if row["part"] == "right"]
    assert [row["step"] for row in rows] == [1, 2, 2] and timed == [{(1, 64)}]
    assert rows[2]["hangs"] and "no result after 3 s" in rows[2]["error"]


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(hopper, "SHAPES", [(1, 2, 1, 65, 70)])


def test_a_right_step_is_found_right_and_repeats_itself(few):
    with simulated():
        rows = [*hopper.right({(1, 64), (5, 64)}, "cpu")]
    assert len(rows) == 4 and all(0 < row["max_error"] < 0.05 for row in rows)
    assert "right" in hopper.line(rows[0])


@pytest.mark.parametrize("which", ["o", "lse", "nan"])
def test_a_wrong_step_is_found_wrong(few, which, monkeypatch):
    forward = hopper_host.forward

    def wrong(*args, **how):
        o, lse = forward(*args, **how)
        if which == "o":
            o[0, 0, -1] += 0.5
        elif which == "nan":
            o[0, 1, 0] = torch.nan
        else:
            lse[0, 1, -1] += 0.01
        return o, lse

    monkeypatch.setattr(hopper_host, "forward", wrong)
    with simulated():
        rows = list(hopper.right({(2, 64)}, "cpu"))
    assert all(("lse are off" if which == "lse" else "o is off") in row["error"] for row in rows)


def test_every_step_is_a_peer_of_the_grid():
    q = torch.randn(1, 1, 70, 64, dtype=torch.float16)
    with simulated():
        for causal in (False, True):
            o = hopper.step_as_peer(3)(q, q, q, causal)
            assert torch.equal(o, hopper.step_as_peer(4)(q, q, q, causal))
