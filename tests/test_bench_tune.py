"""The suites `tune` and `host`: no time without a right result in poisoned memory (no GPU needed)."""

import pytest
import torch
from test_bench_decode import Clock

pytest.importorskip("triton")

from flashlab.bench import host, tune
from flashlab.kernels.launch import Config

CASE = dict(B=1, H=1, N=24, D=16, causal=True)
QUICK = dict(least=1, most=1, warm=1, cold=False)
OTHER = Config(16, 32)


def timed(direction="forward"):
    return tune.timed(CASE, direction, "float16", OTHER, "cpu", Clock(), **QUICK)


@pytest.mark.parametrize("direction", tune.DIRECTIONS)
def test_a_configuration_is_timed_and_compared_with_the_shipped_one(direction):
    row = timed(direction)
    assert row["ms"] == 1.0 and 0 <= row["max_difference"] < 0.01 and row["clock_mhz"] == [None, None]
    products = {"forward": 2, "dkdv": 4, "dq": 3}[direction]
    assert row["tflops"] == pytest.approx(products * 2 * 24 * 24 * 16 / 2 / 1e9)


def test_a_configuration_that_is_wrong_or_writes_nothing_gets_no_time(monkeypatch):
    real, kept = tune.Inputs.launch, {}
    monkeypatch.setattr(
        tune.Inputs, "launch", lambda self, c: tuple(x * (1 if c is None else 2) for x in real(self, c))
    )
    with pytest.raises(AssertionError, match="wrong result: differs by .* from the shipped"):
        timed()
    monkeypatch.setattr(
        tune.Inputs,
        "launch",
        lambda self, c: real(self, c) if c is None else kept.setdefault(0, real(self, c)),
    )
    with pytest.raises(AssertionError, match="wrong result: differs by nan"):
        timed()


def test_lines_of_tune_fit_into_80_columns_also_for_what_failed():
    row = dict(direction="forward", D=128, causal=True, config=[128, 128, 8, 3, True], dtype="bfloat16")
    assert tune.line(row | dict(error="no answer in 60 s")).endswith("no answer in 60 s")
    line = tune.line(row | dict(N=16384, ms=123.456, tflops=567.8))
    assert len(line) < 80 and "128,128,8,3,tma" in line


def test_a_configuration_that_fails_is_a_row_and_said(monkeypatch):
    def timed(case, *rest):
        if case["N"] == 512:
            return dict(ms=1.0, tflops=2.0)
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(tune, "candidates", lambda direction, dim: [OTHER, Config(64, 64)])
    monkeypatch.setattr(tune, "compile_all", lambda jobs, limit: [None, "no answer in 60 s"])
    monkeypatch.setattr(tune, "timed", timed)
    said = []
    rows = list(tune.run([64], [512, 1024], [False], ["forward"], say=said.append))
    assert [row.get("error") for row in rows] == [None, "OutOfMemoryError: no memory", "no answer in 60 s"]
    assert said[0] == "2 configurations to compile" and len(said) == 4


def hosts(monkeypatch, direct, us=3.0):
    """Rows of the suite `host` with `direct` in the place of the bare launch."""
    import flashlab

    sdpa = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(flashlab, "attention", lambda q, k, v, backend: sdpa(q, k, v), raising=False)
    monkeypatch.setattr(host, "direct_launch", lambda q, k, v: direct(sdpa(q, k, v)))
    times = iter([us + i for i in range(100)])
    monkeypatch.setattr(host, "microseconds", lambda call: next(times))
    said = []
    rows = list(host.run(said.append, "cpu"))
    assert all(len(line) < 80 for line, row in zip(said, rows, strict=True) if "us" in row)
    return rows


def test_the_host_has_a_row_for_each_way_checked_with_its_spread(monkeypatch):
    rows = hosts(monkeypatch, lambda right: lambda: right.clone())
    assert [row["way"] for row in rows][0] == "kernel[grid]" and len(rows) == 4
    assert [row["us"] for row in rows] == [3, 8, 13, 18] and rows[0]["most_us"] == 7
    assert [row["over_launch"] for row in rows] == [0, 5, 10, 15]
    assert all(row["max_error"] < 0.1 and row["clock_mhz"] == [None, None] for row in rows)


def test_a_launch_that_writes_nothing_has_no_time_and_nothing_is_compared_with_it(monkeypatch):
    first, *others = hosts(monkeypatch, lambda right: lambda: right)  # stays as it was poisoned
    assert "wrong result" in first["error"] and "us" not in first
    assert [row["over_launch"] for row in others] == [None] * 3 and others[0]["us"] == 3


@pytest.mark.gpu
def test_on_a_gpu_each_way_of_calling_is_right_and_takes_microseconds():
    rows = list(host.run(lambda line: None))
    assert all(1 < row["us"] < 5000 and row["most_us"] >= row["us"] for row in rows), rows
