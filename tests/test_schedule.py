"""Programs on SMs: cases that can be worked out by hand, and laws that hold for any launch."""

import dataclasses

import pytest

from flashlab import gpus
from flashlab.problem import Problem
from flashlab.schedule import ORDERS, Item, place, simulate, work_items

GPU = dataclasses.replace(gpus.get("H200"), name="small", sms=2)


def heads(n, length=1024):
    return Problem(Hq=n, Nq=length)


def test_132_heads_fill_132_sms_once():
    t = simulate(heads(132), "fa1", "H200")
    assert t.makespan == 16 * 16 and t.utilisation == 1 and t.idle == t.tail == 0 and t.waves == 1


def test_one_head_more_takes_a_second_wave_and_leaves_almost_half_of_the_gpu_idle():
    t = simulate(heads(133), "fa1", "H200")
    assert t.makespan == 2 * 256 and t.tail == 256
    assert t.utilisation == pytest.approx(133 / 264)
    assert t.waves == pytest.approx(133 / 132)
    assert t.idle == pytest.approx(t.seconds(131 * 256))


def test_fa2_has_programs_enough_where_fa1_leaves_128_sms_idle():
    fa1, fa2 = (simulate(heads(4, 4224), name, "H200") for name in ("fa1", "fa2"))
    assert len(fa1.programs) == 4 and fa1.utilisation == pytest.approx(4 / 132)
    assert len(fa2.programs) == 4 * 66 and fa2.utilisation == 1 and fa2.waves == 2
    assert fa1.makespan == 66 * 66 and fa2.makespan == 2 * 66


def test_a_causal_mask_by_hand_on_two_sms():
    p = Problem(Hq=1, Nq=256, causal=True)  # four blocks of 1, 2, 3, 4 steps
    natural, back, longest = (simulate(p, "fa2", GPU, order) for order in ORDERS)
    assert [(q.block, q.sm, q.start, q.end) for q in natural.programs] == [
        (0, 0, 0, 1), (1, 1, 0, 2), (2, 0, 1, 4), (3, 1, 2, 6),
    ]  # fmt: skip
    assert natural.makespan == 6 and back.makespan == longest.makespan == 5
    assert [q.block for q in back.programs] == [3, 2, 1, 0] and back.utilisation == 1


def test_longest_first_is_over_all_heads_and_reversed_within_each():
    p = Problem(Hq=2, Nq=128, causal=True)
    assert [i[:3] for i in work_items(p, "fa2", GPU, "reversed")] == [
        (0, 1, 2),
        (0, 0, 1),
        (1, 1, 2),
        (1, 0, 1),
    ]
    assert [i[:3] for i in work_items(p, "fa2", GPU, "longest-first")] == [
        (0, 1, 2), (1, 1, 2), (0, 0, 1), (1, 0, 1),
    ]  # fmt: skip


def test_the_default_order_is_that_of_the_kernels():
    causal, full = Problem(Hq=3, Nq=256, causal=True), Problem(Hq=3, Nq=256)
    assert simulate(causal, "fa2", GPU).programs == simulate(causal, "fa2", GPU, "reversed").programs
    assert simulate(full, "fa2", GPU).programs == simulate(full, "fa2", GPU, "natural").programs


@pytest.mark.parametrize("algorithm", ["fa1", "fa2"])
@pytest.mark.parametrize("causal", [False, "top-left", "bottom-right"])
@pytest.mark.parametrize("per_sm", [1, 2, 3])
@pytest.mark.parametrize("order", ORDERS)
def test_no_slot_works_on_two_programs_at_once_and_all_work_is_done(algorithm, causal, per_sm, order):
    p = Problem(B=2, Hq=3, Nq=500, Nk=700, causal=causal)
    t = simulate(p, algorithm, GPU, order, programs_per_sm=per_sm)
    slots = {}
    for q in t.programs:
        slots.setdefault((q.sm, q.slot), []).append((q.start, q.end))
    for spans in slots.values():
        assert all(end <= start + 1e-9 for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
    items = work_items(p, algorithm, GPU, order)
    assert sorted((q.head, q.block, q.work) for q in t.programs) == sorted(i[:3] for i in items)
    total, longest = sum(i.work for i in items), max(i.work for i in items)
    assert max(total / GPU.sms, longest) <= t.makespan + 1e-9 <= total / GPU.sms + per_sm * longest + 1e-6
    assert 0 < t.utilisation <= 1 + 1e-12 and t.idle >= -1e-12


def test_two_programs_share_an_sm():
    full = place([Item(0, 0, 4), Item(1, 0, 2)], sms=1, per_sm=2)
    # 2 steps each in time 4, then the first alone at full speed
    assert [(p.slot, p.start, p.end) for p in full] == [(0, 0, 6), (1, 0, 4)]
    slow_alone = place([Item(0, 0, 4), Item(1, 0, 2)], sms=1, per_sm=2, alone=0.5)
    assert [(p.slot, p.start, p.end) for p in slow_alone] == [(0, 0, 8), (1, 0, 4)]


def test_every_sm_gets_a_program_before_any_gets_two():
    placed = place([Item(h, 0, 1) for h in range(3)], sms=2, per_sm=2)
    assert [(p.head, p.sm, p.slot) for p in sorted(placed, key=lambda p: p.head)] == [
        (0, 0, 0), (1, 1, 0), (2, 0, 1),
    ]  # fmt: skip


def test_overhead_is_paid_by_every_program():
    p = Problem(Nq=256)
    assert simulate(p, "fa2", GPU, overhead=0.5).makespan == 2 * (4 + 0.5)


def test_a_persistent_grid_deals_items_out_in_advance():
    p = Problem(Nq=320, causal=True)  # 1 2 3 4 5 steps
    t = simulate(p, "fa2", GPU, "natural", persistent=True)
    assert {q.block: q.sm for q in t.programs} == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    assert t.makespan == 1 + 3 + 5


def test_splitting_the_keys_fills_the_gpu_when_decoding():
    p = Problem(Hq=32, Hkv=8, Nq=1, Nk=65536, D=128)
    whole, split = simulate(p, "decode", "H200", splits=1), simulate(p, "decode", "H200")
    assert len(whole.programs) == 8 and whole.makespan == 1024
    assert len(split.programs) == 8 * 16 and split.makespan == 64
    assert {q.split for q in split.programs} == set(range(16))
    assert split.utilisation > 0.95 > 0.1 > whole.utilisation


def test_a_step_takes_the_time_of_its_flops_at_the_peak_of_one_sm():
    t = simulate(heads(132), "fa1", "H200")
    flops = 132 * 4 * 1024**2 * 64
    assert t.seconds(t.makespan) == pytest.approx(flops / 989.5e12)


def test_an_empty_launch_takes_no_time():
    t = simulate(Problem(Nq=0), "fa2", "H200")
    assert t.programs == [] and t.makespan == t.utilisation == t.idle == t.tail == t.waves == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(algorithm="fa9"), "unknown algorithm 'fa9'"),
        (dict(order="random"), "unknown order 'random'"),
        (dict(gpu="H20"), "unknown GPU 'H20'"),
        (dict(programs_per_sm=0), "expected programs_per_sm to be a whole number >= 1, got 0"),
        (dict(programs_per_sm=2, alone=0.4), "expected alone from 1/2 to 1, got 0.4"),
        (dict(overhead=-1), "expected overhead >= 0, got -1"),
        (dict(problem=Problem(B=1000, Hq=100, Nq=640)), "1,000,000 programs are too many"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(change, message):
    arguments = dict(problem=Problem(), algorithm="fa2", gpu=GPU) | change
    with pytest.raises(ValueError, match=message):
        simulate(**arguments)
