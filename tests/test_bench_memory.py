"""The suite `memory`: bytes beyond inputs and results, of runs whose results are right (no GPU needed)."""

import pytest
import torch

from flashlab.bench import __main__ as command
from flashlab.bench import expected, memory, peers


def run(*which, heads=2, dim=16):
    said = []
    rows = list(memory.run(which, heads, dim, said.append, where="cpu", peak=memory.peak_on_cpu))
    assert all(len(line) < 80 for line in said if "MiB" in line)
    return rows


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_expected_is_what_the_formula_says_whole_and_in_pieces(causal):
    q, k, v, do = (torch.randn(1, 1, 70, 8, dtype=torch.float64) for _ in range(4))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    o = peers.standard(*leaves, causal)
    want = (o.detach(), *torch.autograd.grad(o, leaves, do))
    for rows in (16, 70, 1000):
        for got, right in zip(expected.one_head(q, k, v, causal, do, rows), want, strict=True):
            torch.testing.assert_close(got, right.float(), atol=1e-5, rtol=1e-5)
    (alone,) = expected.one_head(q, k, v, causal)
    torch.testing.assert_close(alone, want[0].float(), atol=1e-5, rtol=1e-5)


def test_an_error_is_no_more_than_rounding_or_it_is_wrong():
    right = torch.ones(4)
    assert expected.error([right.half() * 1.001], [right], 16) == pytest.approx(1e-3, rel=0.1)
    for wrong in (right.half() * 1.1, right.half() * float("nan")):
        with pytest.raises(AssertionError, match="wrong result: largest error"):
            expected.error([wrong], [right], 16)


def test_standard_attention_needs_more_for_each_row_the_longer_it_gets_and_is_checked():
    short, long = run(("standard", 64), ("standard", 256))
    assert long["bytes_per_row"] > 3 * short["bytes_per_row"] > 0
    assert 0 < short["max_error"] < 0.1 and set(short) == set(long)
    assert short["bytes_per_row"] == short["extra_bytes"] / 64 / 2


def test_a_peer_on_other_axes_is_checked_on_its_own_axes(monkeypatch):
    def attend(q, k, v, causal):
        return peers.standard(*(x.transpose(1, 2) for x in (q, k, v)), causal).transpose(1, 2).contiguous()

    attend.layout = "BNHD"
    monkeypatch.setattr(peers, "all_peers", lambda: {"mine": lambda: attend})
    (row,) = run(("mine", 48), heads=3)
    assert row["max_error"] < 0.1


WRONG = {
    "another scale": lambda q, k, v, causal: peers.standard(q * 2, k, v, causal),
    "no mask": lambda q, k, v, causal: peers.standard(q, k, v, False),
    "a last head that is zero": lambda q, k, v, causal: (
        peers.standard(q, k, v, causal) * torch.tensor([1, 0], dtype=q.dtype).view(1, 2, 1, 1)
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_has_no_bytes(name, monkeypatch):
    monkeypatch.setattr(peers, "all_peers", lambda: {name: lambda: WRONG[name]})
    (row,) = run((name, 64))
    assert "wrong result" in row["error"] and "extra_bytes" not in row


def test_a_result_that_was_kept_from_before_has_no_bytes(monkeypatch):
    kept = {}

    class Replay(torch.autograd.Function):
        """Computes once, then gives what it gave."""

        @staticmethod
        def forward(ctx, q, k, v):
            ctx.save_for_backward(q, k, v)
            return kept.setdefault("o", peers.standard(q, k, v, True)).clone()

        @staticmethod
        def backward(ctx, do):
            return tuple(torch.zeros_like(x) for x in ctx.saved_tensors)

    monkeypatch.setattr(
        peers, "all_peers", lambda: {"kept": lambda: lambda q, k, v, causal: Replay.apply(q, k, v)}
    )
    (row,) = run(("kept", 64))
    assert "wrong result" in row["error"]


def test_peers_are_those_of_the_suite_kernels_and_an_unknown_one_is_named():
    assert set(memory.PEERS) <= set(peers.all_peers())
    assert {"standard", "sdpa-math", "sdpa-flash", "sdpa-cudnn", "sdpa-efficient", "fa1", "fa2"} == set(
        memory.PEERS
    )
    assert ("standard", 65536) not in memory.cases() and ("fa2", 65536) in memory.cases()
    args = command.parser().parse_args(["memory", "--peers", "cudnn"])
    with pytest.raises(ValueError, match="unknown peer 'cudnn'"):
        command.SUITES["memory"](args)


@pytest.mark.gpu
def test_on_a_gpu_flash_needs_the_same_for_each_row_and_standard_attention_more():
    which = [(peer, n) for peer in memory.PEERS for n in (1024, 2048)]
    rows = {(r["peer"], r["N"]): r for r in memory.run(which, say=lambda line: None)}
    assert not [r for r in rows.values() if "error" in r], rows
    per_row = lambda peer: [rows[peer, n]["bytes_per_row"] for n in (1024, 2048)]  # noqa: E731
    assert per_row("fa2")[1] == pytest.approx(per_row("fa2")[0], rel=0.05)
    assert per_row("standard")[1] > 1.8 * per_row("standard")[0]
