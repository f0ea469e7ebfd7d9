"""The backward of the Hopper kernels on a CPU: right in the simulator, mistakes found, what is refused."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
import torch
from kernel_cases import draw, poison, strided
from warpgroup_backward_faults import COVERED, FAULTS, MASKED, SHARED
from warpgroup_planting import plant

from flashlab import library, warpgroups
from flashlab.bench import hopper as bench
from flashlab.kernels import fa2, fa2_backward, hopper_backward
from flashlab.kernels import hopper_backward_host as host
from flashlab.testing import assert_close_to_reference
from flashlab.warpgroups.simulator import simulated

SMALL = host.Config(16, 2)  # small tiles in the rings, so that few rows make many of them


def forward(shape, dtype=torch.bfloat16, causal=False, scale=None):
    """(q, k, v, do), o, lse, delta and how, for a problem (B, Hq, Hkv, Nq, Nk, D)."""
    q, k, v = draw(shape, dtype)
    do = torch.randn(q.shape, generator=torch.Generator().manual_seed(9)).to(dtype)
    how = dict(causal=causal or None, scale=shape[-1] ** -0.5 if scale is None else scale)
    o, lse = fa2.forward(q, k, v, **how)
    return (q, k, v, do), o, lse, fa2_backward.delta(o, do), how


def check(shape, dtype=torch.bfloat16, causal=False, scale=None, config=None, schedules=("random 0",)):
    """Both passes in the simulator, on poisoned memory, against the reference in float64."""
    (q, k, v, do), o, lse, delta, how = forward(shape, dtype, causal, scale)
    for schedule in schedules:
        with poison(), simulated(schedule):
            dq = host.backward_q(q, k, v, do, lse, delta, config=config, **how)
            dk, dv = host.backward_kv(q, k, v, do, lse, delta, config=config, **how)
        got = dict(o=o, lse=lse, dq=dq, dk=dk, dv=dv)
        assert_close_to_reference(got, q, k, v, do, causal=causal, scale=how["scale"])


SHAPES = [(1, 1, 1, 1, 1, 64), (1, 4, 2, 65, 97, 64), (1, 1, 1, 129, 70, 64), (1, 1, 1, 63, 136, 40)]


@pytest.mark.parametrize("causal", (False, "top-left", "bottom-right"))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_are_right_for_any_mask_and_length(shape, causal):
    check(shape, causal=causal)


def test_wider_heads_and_fp16_are_right():
    check((1, 2, 1, 150, 200, 128), torch.float16, "bottom-right")


def test_they_are_right_and_without_fault_in_every_schedule():
    check((1, 2, 1, 70, 140, 64), causal="top-left", config=SMALL, schedules=warpgroups.SCHEDULES)


@pytest.mark.parametrize("scale", [0.0, -0.4])
def test_a_scale_of_zero_or_below_is_right(scale):
    check((1, 1, 1, 40, 100, 64), torch.float16, "top-left", scale)


def planted(fault, folder, monkeypatch):
    """The two passes, in `host`, become those with the fault (None: without)."""
    modules = plant(fault, folder)
    monkeypatch.setattr(host, "hopper_backward", modules["_backward"])
    monkeypatch.setattr(host, "hopper_backward_dq", modules["_backward_dq"])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_mistake_is_found_in_every_schedule_and_named(fault, tmp_path, monkeypatch):
    planted(fault, tmp_path, monkeypatch)
    how = dict(shape=(1, 1, 1, 80, 70, 64)) | fault.how
    inputs, _, lse, delta, call = forward(**how)
    run = dict(dkdv=host.backward_kv, dq=host.backward_q)[fault.order]
    for schedule in ("time", "first-first", "random 1"):
        with pytest.raises(warpgroups.KernelFault) as found, simulated(schedule):
            run(*inputs, lse, delta, config=SMALL, **call)
        assert type(found.value).__name__ in fault.kinds.split(), f"{schedule}: {found.value!r}"
        for words in fault.says:
            assert words in str(found.value), schedule


@pytest.mark.parametrize("fault", [None, *COVERED], ids=lambda fault: fault.name if fault else "unmodified")
def test_nothing_is_found_where_nothing_is_wrong(fault, tmp_path, monkeypatch):
    planted(fault, tmp_path, monkeypatch)
    for how in (SHARED, MASKED):
        check(**how, config=SMALL, schedules=("time", "first-first", "random 1"))


def test_head_dim_256_is_refused_and_says_why():
    q, k, v = draw((1, 1, 1, 20, 20, 256), torch.float16)
    with pytest.raises(NotImplementedError, match="'fa3' has no backward for head dim 256.*register"):
        host.backward_kv(q, k, v, q, None, None, scale=1.0)


@pytest.mark.parametrize("kind", ["expanded", "off by one element", "columns first"])
def test_gradients_and_heads_anywhere_in_memory_are_read(kind):
    (q, k, v, _), _, lse, _, how = forward((1, 2, 2, 40, 50, 64), torch.float16)
    one = torch.ones((), dtype=torch.float16)
    do = one.expand(q.shape) if kind == "expanded" else strided(torch.randn(q.shape).half(), kind)
    delta = torch.zeros(lse.shape)
    moved = [strided(x, "rows before heads") for x in (q, k, v)]
    with simulated():
        plain = do.clone(memory_format=torch.contiguous_format)
        want = host.backward_q(q, k, v, plain, lse, delta, **how)
        assert torch.equal(host.backward_q(*moved, do, lse, delta, **how), want)


def test_nothing_to_do_needs_no_kernel():
    q, k, v = draw((1, 1, 1, 5, 0, 64), torch.float16)
    assert (host.backward_q(q, k, v, q, None, None, scale=1.0) == 0).all()
    k, v = draw((1, 1, 1, 0, 5, 64), torch.float16)[1:]
    dk, dv = host.backward_kv(q[:, :, :0], k, v, q[:, :, :0], None, None, scale=1.0)
    assert (dk == 0).all() and (dv == 0).all()


def test_fa3_takes_its_own_backward_where_it_is_faster(monkeypatch):
    q, k, v = (x.requires_grad_() for x in draw((1, 2, 1, 20, 20, 64), torch.float16))
    launched = []
    for name in ("backward_q", "backward_kv"):
        real = getattr(host, name)
        monkeypatch.setattr(host, name, lambda *x, real=real, **how: launched.append(real) or real(*x, **how))

    def grads():
        with simulated():
            o, lse = library.run_fa3(q, k, v, "top-left", 0.125)
            return torch.autograd.grad(o.float().square().sum() + lse.sum(), (q, k, v))

    want = grads()
    assert not launched
    monkeypatch.setattr(library, "FA3_BACKWARD_FROM", 20)
    for x, y in zip(grads(), want, strict=True):
        assert torch.allclose(x, y, atol=5e-3)
    assert len(launched) == 2


def test_the_first_runs_of_the_suite_find_a_right_backward_right_and_a_wrong_one_wrong(monkeypatch):
    monkeypatch.setattr(bench, "FIRST", [(1, 2, 1, 65, 70)])
    with simulated():
        bench.agree(64, "cpu")
        real = host.backward_kv
        monkeypatch.setattr(host, "backward_kv", lambda *x, **how: real(*x, **how)[::-1])
        with pytest.raises(AssertionError, match="dk is off"):
            bench.agree(64, "cpu")


def test_a_backward_that_hangs_is_stopped_and_not_timed(monkeypatch):
    monkeypatch.setattr(bench, "timed_backward", lambda cases: list(cases))
    code = "import sys, time; time.sleep(60 if sys.argv[2] == '64' else 0)"
    cases = [dict(D=64), dict(D=128), dict(D=256)]
    first, second, *timed = bench.backward(cases, 2, [sys.executable, "-c", code])
    assert "no result after 2 s" in first["error"] and "error" not in second
    assert timed == [dict(D=128)]


def test_every_wait_says_for_whom():
    for end in ("", "_parts", "_dq"):
        lines = Path(hopper_backward.__file__).with_name(f"hopper_backward{end}.py").read_text().splitlines()
        waits = [i for i, line in enumerate(lines) if line.strip().startswith("mbarrier.wait(")]
        assert all(lines[i - 1].strip().startswith("# waits for: ") for i in waits)
        assert waits or end != "_parts"
