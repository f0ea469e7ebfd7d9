"""What a time is worth: a peer that cheats gets none, one that computes gets its largest error."""

import pytest
import torch

from flashlab.bench import peers, work
from flashlab.bench.timing import Host

CASE = dict(B=2, H=3, N=40, D=16, dtype="float32", causal=True)


def measured(attend, direction="forward", case=CASE, **how):
    how = dict(sets=2, cold=False, budget_ms=1, least=4, warm=1) | how
    return work.measured(attend, case, direction, Host(), "cpu", lambda call: 7, **how)


def bnhd(attend):
    """The same peer for tensors [B, N, H, D]."""

    def run(q, k, v, causal):
        return attend(*(x.transpose(1, 2) for x in (q, k, v)), causal).transpose(1, 2)

    run.layout = "BNHD"
    return run


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("wrap", [lambda attend: attend, bnhd], ids=["BHND", "BNHD"])
def test_an_honest_peer_gets_all_fields(direction, wrap):
    row = measured(wrap(peers.sdpa("MATH")), direction)
    assert 0 < row["max_error"] < 1e-5 and row["low"] <= row["ms"] <= row["high"]
    assert row["cache"] == "warm" and row["input_sets"] == 2 and row["peak_bytes"] == 7
    assert row["runs"] >= 4 and row["tflops"] > 0
    assert ("kept_bytes" in row) == (direction == "backward")


def test_flush_or_warm_is_said_in_the_row():
    assert measured(peers.standard, cold=True, least=1, sets=1)["cache"] == "flushed"


def test_what_autograd_keeps_is_weighed():
    row = measured(peers.sdpa("FLASH_ATTENTION"), "backward")
    rows = 2 * 3 * 40
    assert row["kept_bytes"] == rows * (4 * 16 + 1) * 4  # q, k, v, o and a log-sum-exp for each row
    kept = measured(peers.standard, "backward")["kept_bytes"]
    assert kept >= rows * 40 * 4


def cached(q, k, v, causal, kept={}):  # noqa: B006
    """Computes once for each tensor that it sees, then replays: right, if nobody changes the inputs."""
    if q.data_ptr() not in kept:
        kept[q.data_ptr()] = peers.standard(q, k, v, causal)
    return kept[q.data_ptr()].clone()


def lazy(q, k, v, causal):
    """Writes nothing and trusts that its memory still holds an old result."""
    return torch.empty_like(q)


def half(q, k, v, causal):
    """Computes the first heads only."""
    o = peers.standard(q, k, v, causal)
    o[:, 1:] = 0
    return o


def last_row_missing(q, k, v, causal):
    o = peers.standard(q, k, v, causal)
    o[0, 1, -1] = float("nan")
    return o


def unmasked(q, k, v, causal):
    return peers.standard(q, k, v, False)


@pytest.mark.parametrize("cheat", [half, last_row_missing, unmasked])
def test_a_peer_that_computes_something_else_gets_no_time(cheat):
    with pytest.raises(AssertionError, match="wrong result"):
        measured(cheat)


def test_a_peer_that_replays_what_it_computed_before_gets_no_time():
    with pytest.raises(AssertionError, match="wrong result"):
        measured(cached)


def test_a_peer_that_writes_nothing_gets_no_time():
    with pytest.raises(AssertionError, match="wrong result"):
        measured(lazy, case=CASE | dict(N=256))


def test_inputs_are_new_in_each_run_and_old_results_are_nan():
    seen = []

    def attend(q, k, v, causal):
        seen.append((q, q.clone(), peers.standard(q, k, v, causal)))
        return seen[-1][2]

    measured(attend, sets=2)
    per_set = [numbers for q, numbers, _ in seen if q.data_ptr() == seen[0][0].data_ptr()]
    assert len(per_set) >= 4 and not any(
        torch.equal(a, b) for a, b in zip(per_set, per_set[1:], strict=False)
    )
    assert torch.isnan(seen[0][2]).all() and torch.isfinite(seen[-1][2]).all()


def test_a_wrong_gradient_gets_no_time():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return 1.01 * grad

    with pytest.raises(AssertionError, match="wrong result: largest error"):
        measured(lambda q, k, v, causal: peers.standard(q, k, Wrong.apply(v), causal), "backward")


def test_16_bit_results_are_held_to_the_rounding_of_their_format():
    case = CASE | dict(dtype="bfloat16")
    row = measured(peers.standard, "forward", case)
    assert 1e-4 < row["max_error"] < 16 * 2**-7 * 4
    with pytest.raises(AssertionError, match="wrong result"):
        measured(lambda q, k, v, causal: 1.5 * peers.standard(q, k, v, causal), "forward", case)


def test_as_many_input_sets_are_used_as_fit():
    case = dict(B=1, H=16, N=16384, D=128, dtype="float16", causal=False)
    p = 16 * 16384**2 * 2  # bytes of P; S is as large, and both count twice
    assert work.how_many_sets(case, "fa2", 10**11) == 3 == work.how_many_sets(case, "standard", None)
    assert work.how_many_sets(case, "standard", 17 * p) == 2
    assert work.how_many_sets(case, "sdpa-math", 17 * p) == 1 == work.how_many_sets(case, "fa2", 0)


def test_the_peak_of_a_call_on_the_cpu_is_what_its_allocations_say():
    from flashlab.bench import memory

    x = torch.randn(1000)
    assert memory.peak_on_cpu(lambda: x + x) == 4000
    assert memory.peak_on_cpu(lambda: (x + x) * x) == 8000
    assert memory.peak_on_cpu(lambda: [x + x for _ in "abc"] and None) == 12000
    assert memory.peak_on_cpu(lambda: None) == 0


def test_the_peak_of_a_call_in_numpy_is_what_numpy_tells_tracemalloc():
    import numpy as np

    from flashlab.bench import memory

    most = memory.peak_in_numpy(lambda: np.ones(100_000).sum())
    assert 800_000 <= most < 810_000
    with pytest.raises(ZeroDivisionError):
        memory.peak_in_numpy(lambda: 1 / 0)
