import numpy as np
import pytest

from flashlab.trace import HBM, Event, Trace


def test_a_loaded_tile_is_a_copy_until_it_is_stored():
    x = np.arange(10.0).reshape(5, 2)
    hbm = HBM(dict(x=(x, 2)))
    tile = hbm.load("x", 2)
    assert tile.tolist() == [[8, 9]]
    tile += 1
    assert x[4, 0] == 8
    hbm.store("x", 2, tile)
    assert x[4].tolist() == [9, 10] and hbm.blocks("x") == 3


def test_events_say_program_tensor_tile_and_bytes():
    trace = Trace(dtype="float16")
    hbm = HBM(dict(q=(np.zeros((3, 4)), 2), lse=(np.zeros(3), 2)), trace, (0, 1))
    hbm.load("q", 1), hbm.store("lse", 0, 7.0)
    assert trace == [Event(0, (0, 1), "load", "q", (1,), 8), Event(1, (0, 1), "store", "lse", (0,), 8)]
    assert (
        trace.bytes() == 16
        and trace.bytes("load") == 8
        and trace.bytes(tensor="lse") == 8
        and trace.bytes("store", "q") == 0
    )


def test_a_plain_list_counts_as_half_precision():
    trace = []
    HBM(dict(q=(np.zeros((3, 4)), 2)), trace).load("q", 0)
    assert trace[0].bytes == 16


def test_an_unknown_format_is_named():
    with pytest.raises(ValueError, match="unknown dtype 'float61'. Did you mean 'float64' or 'float16'"):
        Trace(dtype="float61")
