"""Attention calls that differ from another in one known thing: the levers of the detectors.

Each takes a device and a call (q, k, v, causal) -> o and gives such a call.
"""

import itertools


def _like(call, changed):
    changed.kernel = call.kernel
    return changed


def busy_device(device, call, ms):
    """Every call takes `ms` longer on the device; the host does not notice."""

    def changed(*inputs):
        result = call(*inputs)
        device.delay(ms)
        return result

    return _like(call, changed)


def busy_host(device, call, ms):
    """Every call keeps the host for `ms` before it launches."""

    def changed(*inputs):
        device.pause(ms * 1e-3)
        return call(*inputs)

    return _like(call, changed)


def first_call(device, call, ms):
    """The first call of all keeps the host for `ms`."""
    return _first(device, call, ms, lambda q: None)


def first_of_shape(device, call, ms):
    """The first call on each shape of q keeps the host for `ms`."""
    return _first(device, call, ms, lambda q: tuple(q.shape))


def now_and_then(device, call, ms, every=10):
    """One call in ten takes `ms` longer on the device, not the first."""
    turn = itertools.count(1)

    def changed(*inputs):
        result = call(*inputs)
        if next(turn) % every == 0:
            device.delay(ms)
        return result

    return _like(call, changed)


def mostly(device, call, ms, every=5):
    """Four calls in five take `ms` longer on the device, the first among them."""
    turn = itertools.count(1)

    def changed(*inputs):
        result = call(*inputs)
        if next(turn) % every:
            device.delay(ms)
        return result

    return _like(call, changed)


def other_places(device, call, copies=6):
    """Every call finds its keys and values at another place than the call before: six copies take turns."""
    places, turn = {}, itertools.count()

    def changed(q, k, v, causal):
        if id(k) not in places:
            places[id(k)] = (k, [(device.copy(k), device.copy(v)) for _ in range(copies)])
        k, v = places[id(k)][1][next(turn) % copies]
        return call(q, k, v, causal)

    return _like(call, changed)


def filled(device, call):
    """The first call on a tensor finds normal random values in it, whatever was there."""
    known = {}

    def changed(*inputs):
        for x in inputs[:3]:
            if id(x) not in known:
                known[id(x)] = x
                device.renew(x, seed=len(known))
        return call(*inputs)

    return _like(call, changed)


def wrong(device, call):
    """Noise is written over every result."""

    def changed(*inputs):
        result = call(*inputs)
        device.renew(result, seed=99)
        return result

    return _like(call, changed)


def watched(device, call, seen):
    """Appends the largest standard deviation among q, k and v of each call to `seen`."""

    def changed(*inputs):
        if len(seen) < 2:
            seen.append(max(device.spread(x) for x in inputs[:3]))
        return call(*inputs)

    return _like(call, changed)


def _first(device, call, ms, key):
    known = set()

    def changed(*inputs):
        if key(inputs[0]) not in known:
            known.add(key(inputs[0]))
            device.pause(ms * 1e-3)
        return call(*inputs)

    return _like(call, changed)
