"""The decode benchmark, as far as a machine without a GPU can tell: cases, bytes, peers, command line."""

import json

import pytest
import torch
from decode_cases import draw_queries

from flashlab.bench import __main__ as command
from flashlab.bench import decode as bench


def draw(heads, kv_heads):
    """One query token of two sequences, and their 40 keys and values."""
    k, v = (draw_queries(2, kv_heads, 40, 16, seed=s) for s in (2, 3))
    return draw_queries(2, heads, 1, 16), k, v


def test_the_cases_are_those_of_the_table_with_their_sizes_in_megabytes():
    assert [round(case.kv_bytes / 1e6) for case in bench.CASES] == [34, 268, 537, 1074, 537, 537]


@pytest.mark.parametrize("case", bench.CASES, ids=str)
def test_caches_that_take_turns_are_too_big_for_l2_and_used_equally_often(case):
    assert case.caches >= 2 and case.caches * case.kv_bytes >= 512e6
    assert case.calls % case.caches == 0
    assert 2e9 <= case.calls * case.kv_bytes <= 6e9


def test_a_summary_is_in_bytes_of_k_and_v_per_second():
    case = bench.Case(1, 32, 8, 65536, 128)
    row = bench.summary(case, [case.calls * 0.1] * 9 + [case.calls * 0.3], 4.0)
    assert row["us"] == pytest.approx(100) and row["runs"] == 10
    assert row["tbs"] == pytest.approx(2.684, abs=1e-3)  # 268 MB in 100 us
    assert row["percent_of_copy"] == pytest.approx(67.1, abs=0.1)
    assert row["low"] == row["us"] == row["high"]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (2, 2)])
def test_our_peer_passes_the_check_and_a_wrong_result_does_not(heads, kv_heads):
    pytest.importorskip("triton")
    q, k, v = draw(heads, kv_heads)
    lengths = torch.full((2,), 40, dtype=torch.int32)
    for name in ("decode", "decode:3", "decode:2:16,16,4,2"):
        o = bench.make_peer(name)(q, k, v, lengths)
        assert bench.check(o, q, k, v) < 1e-6
    with pytest.raises(AssertionError, match="wrong result"):
        bench.check(o.flip(1), q, k, v)
    with pytest.raises(AssertionError, match="wrong result"):
        bench.check(o * float("nan"), q, k, v)


def test_the_peers_of_pytorch_share_heads_as_ours_does():
    q, k, v = draw(4, 2)
    assert bench.check(bench.sdpa("MATH")(q, k, v, None), q, k, v) < 1e-6


class Replay:
    """What a CUDA graph does, on a CPU: replaying writes into the results that are there."""

    def __init__(self, calls, keep=0):
        self.calls, self.keep = calls, keep
        self.results = [call() for call in calls[-keep:]] if keep else []

    def replay(self):
        for call in self.calls[: -self.keep or None]:
            call()
        for result, call in zip(self.results, self.calls[-self.keep :], strict=True) if self.keep else ():
            result.copy_(call())


class Clock:
    """A device on which each mark is a millisecond after the last."""

    def __init__(self):
        self.marks = 0

    def record(self):
        self.marks += 1
        return self.marks

    def elapsed(self, start, end):
        return end - start

    def synchronize(self):
        pass


def rows(monkeypatch, capture=Replay):
    pytest.importorskip("triton")
    monkeypatch.setattr(bench, "COPY_BYTES", 4000)
    monkeypatch.setattr(bench, "ROTATION_BYTES", 20_000)
    monkeypatch.setattr(bench, "GRAPH_BYTES", 40_000)
    case = bench.Case(2, 4, 2, 24, 16, "float16")
    monkeypatch.setattr(bench, "make_peer", lambda name: bench.sdpa("MATH") if name == "math" else 1 / 0)
    return list(bench.measure(case, ["math", "none"], 3, "cpu", Clock(), capture, lambda call: 7))


def test_a_case_is_measured_checked_and_a_peer_that_fails_says_why(monkeypatch):
    row, none = rows(monkeypatch)
    assert row["us"] == pytest.approx(1000 / 8) and row["runs"] == 3 and 0 < row["max_error"] < 1e-2
    assert row["floor_bytes"] == 2 * 2 * 2 * 24 * 16 * 2 and row["floor_flops"] == 4 * 2 * 4 * 24 * 16
    assert row["peak_bytes"] == 7 and row["cache"] == "rotated" and row["clock_mhz"] == [None, None]
    assert none["error"] == "ZeroDivisionError: division by zero" and "us" not in none


def test_a_graph_that_replays_nothing_gets_no_time(monkeypatch):
    class Idle(Replay):
        def replay(self):
            pass

    row, _ = rows(monkeypatch, Idle)
    assert "wrong result" in row["error"] and "us" not in row


def test_a_graph_that_leaves_one_cache_out_gets_no_time(monkeypatch):
    class Short(Replay):
        def replay(self):
            self.results[0].copy_(self.calls[-self.keep]()) if self.keep else None

    row, _ = rows(monkeypatch, Short)
    assert "wrong result" in row["error"]


def test_a_variant_names_splits_and_configuration():
    pytest.importorskip("triton")
    assert bench.read_variant("decode:16") == (16, None)
    splits, config = bench.read_variant("decode::32,64,8,3")
    assert splits is None and tuple(config[:4]) == (32, 64, 8, 3)


def test_an_unknown_peer_is_named():
    with pytest.raises(ValueError, match="unknown peer 'sdpa-cuda'"):
        bench.make_peer("sdpa-cuda")


def test_a_line_shows_the_result_or_why_there_is_none():
    row = dict(bench.CASES[0]._asdict(), peer="decode") | bench.summary(bench.CASES[0], [1.0], 4.0)
    assert bench.HEAD.split() == "B Hq Hkv Nk D peer TB/s of copy us low-high".split()
    assert bench.line(row).split() == "1 32 8 8192 128 decode 3.758 94.0 % 8.9 8.9-8.9".split()
    assert bench.line(dict(bench.CASES[0]._asdict(), peer="x", error="no kernel")).endswith("no kernel")


def test_the_command_line_knows_the_suite_and_says_when_there_is_no_gpu(capsys, monkeypatch):
    args = command.parser().parse_args(["decode", "--out", "x.json", "--peers", "decode", "decode:8"])
    assert args.suite == "decode" and args.peers == ["decode", "decode:8"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main(["decode"]) == 1
    assert "flashlab bench decode needs an NVIDIA GPU" in capsys.readouterr().err


def test_rows_are_measured_by_case_and_written_with_where_they_come_from(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(command, "provenance", lambda command: {"gpu": "none"})
    fake = dict(bench.CASES[0]._asdict(), peer="decode", error="not measured")
    monkeypatch.setattr(bench, "measure", lambda case, peers, rounds: [fake | dict(peers=list(peers))])
    out = tmp_path / "x.json"
    assert command.main(["decode", "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    assert result["suite"] == "decode" and len(result["rows"]) == len(bench.CASES)
    assert result["rows"][0]["peers"] == list(bench.PEERS)
