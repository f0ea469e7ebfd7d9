"""The loads and stores of the backward passes, counted as in `flashlab.flows`."""

from flashlab.flows import (
    FP32,
    Flow,
    Pass,
    Rounds,
    Tiles,
    if_fits,
    shared_reads,
    sizes,
    stream,
    trips,
)


def standard_backward(p, how):
    """dV, dP, dS, dQ, dK from the P of the forward pass: five passes (FlashAttention, Algorithm 3)."""
    rows, keys, square = sizes(p)
    s, d = square * p.itemsize, p.D * p.itemsize
    found = [
        stream("load", "p", s), stream("load", "do", rows * d), stream("store", "dv", keys * d),
        stream("load", "do", rows * d), stream("load", "v", keys * d), stream("store", "dp", s),
        if_fits(how, "load", "p", s), if_fits(how, "load", "dp", s), stream("store", "ds", s),
        if_fits(how, "load", "ds", s), stream("load", "k", keys * d), stream("store", "dq", rows * d),
        if_fits(how, "load", "ds", s), stream("load", "q", rows * d), stream("store", "dk", keys * d),
    ]  # fmt: skip
    # dP: product with P and its row sum, subtract, product with P; scale of dQ and dK
    return Pass(found, 8 * square * p.D, 4 * square + (rows + keys) * p.D, 0, 3 * s)


def fa1_backward(p, how):
    """Key blocks outside; dQ in fp32 travels to memory and back (Algorithm 4)."""
    t, (rows, keys, _), heads, d = Tiles(p), sizes(p), p.B * p.Hq, p.D
    met, e = heads * t.rows_met, p.itemsize
    group = p.Hq // p.Hkv
    in_flight = min(how.in_flight, p.B * p.Hkv) * group
    r = Rounds(t, how, in_flight, d * (3 * e + FP32) + FP32)
    found = [r.store("dq_fp32", d * FP32, heads), *(stream("load", x, keys * d * e) for x in ("k", "v"))]
    found += [*(r.load(x, d * e, heads) for x in ("q", "o", "do")), r.load("lse", FP32, heads)]
    found += [r.load_again("dq_fp32", d * FP32, heads)]
    found += [stream("store", x, keys * d * e) for x in ("dk", "dv")] + [stream("store", "dq", rows * d * e)]
    # a score: scale, subtract, exp, subtract, product; a row at each visit: delta again (2 d)
    scores = heads * t.elements
    other = 5 * scores + met * 2 * d + (met + keys) * d
    return Pass(found, 10 * scores * d, other, scores, rows * (d + 1) * FP32)


def fa2_delta(p, how):
    """delta = rowsum(dO * O) (FlashAttention-2, Algorithm 2, line 4)."""
    rows, d = p.B * p.Hq * p.Nq, p.D
    found = [stream("load", x, rows * d * p.itemsize) for x in ("o", "do")]
    return Pass([*found, stream("store", "delta", rows * FP32)], 0, 2 * rows * d, 0, rows * FP32)


def fa2_dkdv(p, how):
    """dK and dV: a program for each key block meets the query blocks of its heads."""
    t, (_, keys, _), heads, d = Tiles(p), sizes(p), p.B * p.Hq, p.D
    met, e, group = heads * t.rows_met, p.itemsize, p.Hq // p.Hkv
    q_rows = sum(r for r, n in zip(t.rows, t.last, strict=True) if n)
    head_bytes = group * q_rows * (2 * d * e + 2 * FP32)
    own_bytes = 4 * min(p.block_k, p.Nk) * d * e  # k, v, dk and dv
    times = trips(how, t.key_blocks, p.B * p.Hkv, head_bytes, own_bytes)

    def rows_of(name, width):
        asked, n = met * width, group * q_rows * width
        once = min(p.B * p.Hkv * n, asked)
        return Flow("load", name, asked, once, min(max(round(times * n), once), asked))

    found = [stream("load", x, keys * d * e) for x in ("k", "v")]
    found += [rows_of("q", d * e), rows_of("do", d * e), rows_of("lse", FP32), rows_of("delta", FP32)]
    found += [stream("store", x, keys * d * e) for x in ("dk", "dv")]
    # a score: scale, subtract, exp, subtract, product
    scores = heads * t.elements
    return Pass(found, 8 * scores * d, 5 * scores + 2 * keys * d, scores, p.B * p.Hq * p.Nq * FP32)


def fa2_dq(p, how):
    """dQ in a pass of its own: a program for each query block meets its key blocks once more."""
    t, (rows, _, _), heads, d = Tiles(p), sizes(p), p.B * p.Hq, p.D
    keys = t.loaded(how.tma)
    kv = shared_reads(p, how, keys, own=3)  # q, do and dq
    found = [stream("load", x, rows * d * p.itemsize) for x in ("q", "do")]
    found += [stream("load", x, rows * FP32) for x in ("lse", "delta")] + [kv("k"), kv("v")]
    found += [stream("store", "dq", rows * d * p.itemsize)]
    scores = heads * t.elements_of(keys)
    return Pass(found, 6 * scores * d, 5 * scores + rows * d, scores, 0)
