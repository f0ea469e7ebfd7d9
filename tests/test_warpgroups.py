"""The simulator of warpgroups: the Hopper kernels are right in it, and what is planted into them is found."""

import math
import threading

import numpy as np
import pytest

pytest.importorskip("triton.experimental.gluon")
torch = pytest.importorskip("torch")

from triton.experimental import gluon  # noqa: E402
from triton.experimental.gluon import language as gl  # noqa: E402
from triton.experimental.gluon.language.nvidia.hopper import (  # noqa: E402
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor  # noqa: E402
from warpgroup_faults import FAULTS  # noqa: E402
from warpgroup_planting import plant  # noqa: E402

from flashlab import warpgroups  # noqa: E402
from flashlab.kernels import hopper_host  # noqa: E402
from flashlab.kernels.gluon_names import tma_load, tma_store  # noqa: E402
from flashlab.testing import assert_close_to_reference  # noqa: E402
from flashlab.warpgroups import faults  # noqa: E402
from flashlab.warpgroups.simulator import simulated  # noqa: E402
from flashlab.warpgroups.tiles import Int  # noqa: E402

STEPS = (None, "one_by_one", "look_ahead", "in_turns")


def descriptor(x, block):
    """A TMA descriptor of a CPU tensor."""
    dtype = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}[x.dtype]
    return TensorDescriptor.from_tensor(x, block, gl.NVMMASharedLayout.get_default_for(block, dtype))


def forward(
    order, B=1, Hq=1, Hkv=1, Nq=128, Nk=320, D=64, block_k=64, stages=2, causal=None, dtype=torch.float16,
    persistent=True, scale=None, v_stages=None, consumers=2,
):  # fmt: skip
    """Launch the Hopper kernel of that order (None: step 1) on random inputs and assert that it is right."""
    torch.manual_seed(0)
    q = torch.randn(B, Hq, Nq, D).to(dtype)
    k, v = (torch.randn(B, Hkv, Nk, D).to(dtype) for _ in "kv")
    persistent = persistent and order is not None
    config = hopper_host.Config(block_k, order, persistent, stages, v_stages or stages, consumers=consumers)
    scale = scale or 1 / math.sqrt(D)
    o, lse = hopper_host.forward(q, k, v, causal=causal, scale=scale, config=config)
    assert_close_to_reference(dict(o=o, lse=lse), q, k, v, causal=causal or False, scale=scale)


@pytest.fixture(autouse=True)
def two_programs(monkeypatch):
    """A persistent launch has two programs, so that each goes through several query blocks."""
    monkeypatch.setattr(hopper_host, "H200_SMS", 2)


@pytest.fixture
def planted(monkeypatch, tmp_path):
    """A function that puts a fault (None: none) into the kernels that `forward` launches."""

    def put(fault):
        modules = plant(fault, tmp_path)
        monkeypatch.setattr(hopper_host, "hopper", modules[""])
        monkeypatch.setattr(hopper_host, "hopper_first", modules["_first"])
        monkeypatch.setattr(hopper_host, "ORDERS", {o: getattr(modules["_orders"], o) for o in STEPS[1:]})

    return put


@pytest.mark.parametrize("order", STEPS)
def test_the_unmodified_kernel_is_right_and_without_fault_in_every_schedule(order):
    warpgroups.check(lambda: forward(order, Nq=260, Nk=260, causal="top-left", dtype=torch.bfloat16))


CASES = {
    "five full tiles": dict(),
    "ragged, shared heads": dict(Nq=200, Nk=150, Hq=2),
    "bottom-right, negative scale": dict(Nq=130, Nk=200, causal="bottom-right", scale=-0.2),
    "one key": dict(Nq=1, Nk=1),
    "D 128, three stages": dict(D=128, block_k=128, Nk=512, stages=3),
    "a ring of three V, ragged": dict(Nq=200, Nk=333, v_stages=3, causal="bottom-right"),
    "three consumers, masked": dict(Nq=450, Nk=390, Hkv=1, Hq=2, consumers=3, stages=3, causal="top-left"),
    "three consumers, two without rows": dict(Nq=193, Nk=100, consumers=3, causal="bottom-right"),
    "not persistent": dict(Nq=200, Nk=150, persistent=False),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", STEPS)
def test_it_is_right_for_every_kind_of_problem(order, case):
    warpgroups.check(lambda: forward(order, **CASES[case]), ("time", "last-first"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_mistake_is_found_in_every_schedule_and_named(fault, planted):
    planted(fault)
    for schedule in ("time", "first-first", "random 1"):
        with pytest.raises(warpgroups.KernelFault) as found, simulated(schedule):
            forward(fault.order, **dict(Nq=384) | fault.how)
        assert type(found.value).__name__ in fault.kinds.split(), f"{schedule}: {found.value!r}"
        for words in fault.says:
            assert words in str(found.value), schedule


def test_a_plan_without_its_last_entry_is_read_beyond_its_end(monkeypatch):
    whole = hopper_host.plan
    monkeypatch.setattr(hopper_host, "plan", lambda *args: whole(*args)[:-1].clone())
    with pytest.raises(faults.OutOfBounds, match="my_work.*load of element"), simulated():
        forward("look_ahead", Nq=384)


@pytest.mark.parametrize("order", STEPS)
def test_nothing_is_found_where_nothing_is_planted(order, planted):
    planted(None)
    warpgroups.check(lambda: forward(order, Nq=384), ("time", "first-first", "random 1"))


def test_triton_is_as_before_after_a_simulation_and_after_a_fault():
    from triton.experimental.gluon._runtime import GluonJITFunction

    before = dict(vars(GluonJITFunction))
    with simulated():
        forward("one_by_one", Nk=64)
        assert dict(vars(GluonJITFunction)) != before
    assert dict(vars(GluonJITFunction)) == before
    with pytest.raises(ZeroDivisionError), simulated():
        raise ZeroDivisionError
    assert dict(vars(GluonJITFunction)) == before


def test_no_thread_is_left_after_a_deadlock(planted):
    planted(next(f for f in FAULTS if f.name == "a stage is never released"))
    before = threading.active_count()
    with pytest.raises(warpgroups.Deadlock), simulated():
        forward("look_ahead")
    assert threading.active_count() == before


def test_a_caller_without_gradients_or_in_inference_mode_gets_the_same():
    q, k, v = (torch.randn(1, 1, 70, 64, generator=torch.Generator().manual_seed(i)).half() for i in range(3))
    found = []
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode(), simulated("random 0"):
            found.append(torch.cat([x.flatten() for x in hopper_host.forward(q, k, v, scale=0.1)]))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_a_schedule_that_does_not_exist_is_refused_by_name():
    with pytest.raises(ValueError, match="unknown schedule 'round robin'.*round-robin"):
        simulated("round robin")


def test_the_same_seed_gives_the_same_run():
    def events(schedule):
        with simulated(schedule) as simulation:
            forward("look_ahead")
        return simulation.logs

    assert events("time") == events("time")
    assert events("random 7") == events("random 7")


# small kernels: one thing each


@gluon.jit
def copy_kernel(
    x_desc, y_desc, ROWS: gl.constexpr, D: gl.constexpr,
    WAIT: gl.constexpr, FENCE: gl.constexpr, DRAIN: gl.constexpr,
):  # fmt: skip
    tile = gl.allocate_shared_memory(x_desc.dtype, [ROWS, D], x_desc.layout)
    there = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(there, count=1)
    first = gl.program_id(0) * ROWS
    mbarrier.expect(there, x_desc.block_type.nbytes)
    tma_load(x_desc, [first, 0], there, tile)
    if WAIT:
        mbarrier.wait(there, 0)
    x = tile.load(gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0]))
    tile.store(x + x)
    if FENCE:
        fence_async_shared()
    tma_store(y_desc, [first, 0], tile)
    if DRAIN:
        tma.store_wait(0)


def copy(wait=True, fence=True, drain=True, rows=100):
    x = torch.arange(rows * 64).reshape(rows, 64).to(torch.float16) / 64
    y = torch.zeros_like(x)
    args = descriptor(x, [64, 64]), descriptor(y, [64, 64])
    copy_kernel[(math.ceil(rows / 64),)](*args, 64, 64, wait, fence, drain)
    assert (y == x + x).all()


def test_a_kernel_of_one_partition_runs_and_clips_at_the_edge():
    warpgroups.check(copy)


def test_a_load_before_the_barrier_is_named_with_the_barrier_that_it_should_wait_for():
    says = (
        r"copy_kernel.*reads tile, where the copy of x tile 0 .*completes there, phase 0 .* has never waited"
    )
    with pytest.raises(faults.ReadTooEarly, match=says), simulated():
        copy(wait=False)


def test_a_missing_fence_is_named():
    with pytest.raises(faults.MissingFence, match="TMA store to y tile 0"), simulated():
        copy(fence=False)


def test_a_program_that_ends_while_its_store_reads_is_found():
    with pytest.raises(faults.NotWaitedFor, match="ends while the TMA store to y tile 0"), simulated():
        copy(drain=False)


@gluon.jit
def matmul_kernel(
    a_desc, b_desc, out_ptr, N: gl.constexpr, EARLY: gl.constexpr, SPILL: gl.constexpr, MORE: gl.constexpr
):
    a = gl.allocate_shared_memory(a_desc.dtype, [64, N], a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [N, N], b_desc.layout)
    there = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(there, count=1)
    mbarrier.expect(there, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
    tma_load(a_desc, [0, 0], there, a)
    tma_load(b_desc, [0, 0], there, b)
    mbarrier.wait(there, 0)
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    acc = warpgroup_mma(a, b, gl.zeros([64, N], gl.float32, LAYOUT), is_async=True)
    acc = warpgroup_mma(a, b, acc, is_async=True)
    if EARLY:
        acc = acc * 2.0
    if SPILL:
        tma_load(b_desc, [0, 0], there, b)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    if MORE:
        warpgroup_mma(a, b, acc, is_async=True)
    rows = gl.arange(0, 64, gl.SliceLayout(1, LAYOUT))[:, None]
    gl.store(out_ptr + rows * N + gl.arange(0, N, gl.SliceLayout(0, LAYOUT))[None, :], acc)


def matmul(early=False, spill=False, more=False, short=0):
    torch.manual_seed(0)
    a, b = torch.randn(64, 64).half(), torch.randn(64, 64).half()
    out = torch.zeros(64 * 64 - short)
    matmul_kernel[(1,)](descriptor(a, [64, 64]), descriptor(b, [64, 64]), out, 64, early, spill, more)
    np.testing.assert_allclose(out.view(64, 64), 2 * a.float() @ b.float(), rtol=1e-5, atol=1e-4)


def test_chained_wgmma_in_flight_add_up():
    warpgroups.check(matmul)


def test_an_accumulator_is_poison_until_it_is_waited_for():
    with pytest.raises(faults.NotWaitedFor, match="uses the result of the wgmma with b tile 0"), simulated():
        matmul(early=True)


def test_a_program_that_ends_with_a_wgmma_in_flight_is_found():
    with pytest.raises(faults.NotWaitedFor, match="ends while the wgmma with b tile 0"), simulated():
        matmul(more=True)


def test_a_copy_onto_what_a_wgmma_reads_is_found_at_once():
    says = "overwrites b, while the wgmma with b tile 0 .* may still be reading it"
    with pytest.raises(faults.Overwritten, match=says), simulated():
        matmul(spill=True)


def test_a_store_outside_of_its_tensor_is_found():
    with pytest.raises(faults.OutOfBounds, match="element 4095 of a tensor of 4095 elements"), simulated():
        matmul(short=1)


def test_kernel_integers_divide_towards_zero_as_on_a_gpu():
    assert (Int(-5) // 64, Int(-5) % 64, -5 // Int(4), Int(7) // 2) == (0, -5, -1, 3)
    assert all(type(x) is Int for x in (Int(3) + 4, 4 - Int(3), Int(2) * Int(3), Int(5) & 1, -Int(1)))


def test_what_is_not_in_the_subset_is_refused_by_name():
    @gluon.jit
    def kernel(x_ptr):
        gl.histogram(gl.arange(0, 64), 8)

    with pytest.raises(NotImplementedError, match="does not know core.histogram"), simulated():
        kernel[(1,)](torch.zeros(1))
