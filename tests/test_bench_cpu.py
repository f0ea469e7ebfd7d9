"""The suite `cpu`: five programs, one formula; what grows with N and what does not."""

import pytest
import torch

from flashlab.bench import cpu, peers, sdpa_paths

CASE = dict(dtype="float32", D=16, N=70, causal=True, B=1, H=2)


def run(*names, lengths=(64, 128), **how):
    return list(cpu.run(lengths, lambda line: None, budget_ms=1, names=list(names) or None, **how))


def test_all_peers_are_measured_by_length_and_agree_up_to_rounding():
    rows = run(lengths=(64,), causal=(False, True), dims=(16,))
    assert [r["peer"] for r in rows[:5]] == list(cpu.PEERS) and len(rows) == 2 * 2 * 5
    for row in rows:
        assert "error" not in row, row
        assert 0 < row["max_error"] < 1e-5 and row["cache"] == "warm"
        assert row["low"] <= row["ms"] <= row["high"] and row["peak_bytes"] > 0
        assert ("kept_bytes" in row) == (row["direction"] == "backward")


def test_memory_grows_with_n_squared_where_the_scores_are_kept_and_with_n_where_not():
    rows = {(r["peer"], r["direction"], r["N"]): r for r in run(lengths=(128, 256), dims=(16,))}
    for peer, least, most in (("standard", 3, 4), ("sdpa-math", 3, 4), ("sdpa-flash", 2, 2)):
        kept = [rows[peer, "backward", n]["kept_bytes"] for n in (128, 256)]
        assert least <= kept[1] / kept[0] <= most, peer
    for peer, most in (("standard", 4.1), ("numpy-naive", 4.1), ("sdpa-flash", 3)):
        peak = [rows[peer, "forward", n]["peak_bytes"] for n in (128, 256)]
        assert 1.5 < peak[1] / peak[0] <= most, peer
    assert rows["numpy-fa2", "forward", 256]["peak_bytes"] < rows["numpy-naive", "forward", 256]["peak_bytes"]


@pytest.mark.parametrize("name", ["numpy-naive", "numpy-fa2"])
def test_numpy_is_a_differentiable_function_of_tensors(name):
    leaves = [torch.randn(1, 2, 70, 16, requires_grad=True) for _ in range(3)]
    do = torch.randn(1, 2, 70, 16)
    o, want = cpu.make(name)(*leaves, True), peers.standard(*leaves, True)
    torch.testing.assert_close(o, want, atol=1e-5, rtol=1e-4)
    for got, right in zip(
        torch.autograd.grad(o, leaves, do), torch.autograd.grad(want, leaves, do), strict=True
    ):
        torch.testing.assert_close(got, right, atol=1e-4, rtol=1e-4)


def test_numpy_goes_only_as_far_as_it_goes_in_seconds_unless_it_is_asked():
    longest = {name: max(c["N"] for c, _, n in cpu.plan() if n == name) for name in cpu.PEERS}
    assert longest["numpy-naive"] == longest["numpy-fa2"] == 1024 < longest["sdpa-flash"] == 2048
    assert len(cpu.plan((4096,), names=["numpy-fa2"])) == 2


def test_a_length_that_does_not_fit_into_memory_is_a_row_that_says_so(monkeypatch):
    monkeypatch.setattr(sdpa_paths, "free_bytes", lambda: 100_000)
    (row,) = run("standard", lengths=(512,), directions=["forward"])
    assert row["error"] == "MemoryError: about 20 MiB are needed and 97.66 KiB are free" and "ms" not in row


def test_an_unknown_peer_is_refused_with_the_closest():
    with pytest.raises(ValueError, match="unknown peer 'numpy'. Did you mean 'numpy-"):
        run("numpy")
    with pytest.raises(ValueError, match="unknown peer 'fa2'"):
        cpu.plan(names=["fa2"])


@pytest.mark.parametrize(
    "which, why",
    [
        (dict(directions=["forwrd"]), "unknown direction 'forwrd'. Did you mean 'forward'"),
        (dict(lengths=(64, 0)), "expected lengths from 1 up, got 0"),
        (dict(dims=(-8,)), "expected dims from 1 up, got -8"),
    ],
)
def test_what_is_no_direction_and_no_size_is_not_measured(which, why):
    with pytest.raises(ValueError, match=why):
        cpu.plan(**which)


def test_it_says_what_it_does_not_show():
    for text in (cpu.NOTE, cpu.__doc__):
        assert "FlashAttention is on a GPU" in text
    said = []
    list(cpu.run((16,), said.append, budget_ms=1, names=["standard"], directions=["forward"]))
    assert len(said) == 3 and said[-1] == cpu.NOTE
