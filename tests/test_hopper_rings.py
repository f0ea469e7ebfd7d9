"""Persistent Hopper kernels in the simulator: each order, ring and number of consumers, at ragged ends."""

import itertools

import pytest

pytest.importorskip("triton")
from test_warpgroups import STEPS, forward

from flashlab import warpgroups
from flashlab.kernels import hopper_host
from flashlab.warpgroups.simulator import simulated

# order, consumers, stages of K and of V
RINGS = list(itertools.product(STEPS[1:], (2, 3), ((2, 2), (2, 3), (3, 3))))
ENDS = [  # (queries, keys) around the 64 rows of a consumer and of a key tile, and three consumers' 192
    (1, 1), (63, 63), (64, 64), (65, 65), (191, 191), (192, 192), (193, 193), (387, 387), (63, 1), (65, 64),
    (191, 65), (192, 63), (193, 191), (387, 193), (1, 65), (64, 193), (191, 387), (193, 400),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(RINGS)), ids=lambda number: str(RINGS[number]))
def test_each_order_ring_and_number_of_consumers_is_right_at_ragged_ends(number, monkeypatch):
    order, consumers, (stages, v_stages) = RINGS[number]
    # over the three rings an order meets each of the ends once; over the orders, each end meets each mask
    for i in range(6):
        queries, keys = ENDS[(6 * (number % 3) + 5 * (number // 3) + i) % len(ENDS)]
        causal = (None, "top-left", "bottom-right")[i % 3]
        monkeypatch.setattr(hopper_host, "H200_SMS", 1 + (number + i) % 3)
        with simulated(warpgroups.SCHEDULES[(6 * number + i) % len(warpgroups.SCHEDULES)]):
            forward(
                order, Hq=2 + i // 3, Nq=queries, Nk=keys, D=16, causal=causal, stages=stages,
                v_stages=v_stages, consumers=consumers,
            )  # fmt: skip
