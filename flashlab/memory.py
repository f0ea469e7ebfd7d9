"""How many bytes an attention algorithm moves, how much it computes, what it keeps: from the sizes alone.

`traffic(problem, algorithm)` is exact: the same bytes, tensor by tensor, that the loops of `flashlab.tiled`
write down and that the kernels load and store (a test holds all three together).

Two levels, never to be mixed in one figure:
- "sm": what the programs ask for. On a GPU these bytes come from L2. The papers call them HBM accesses,
  which they are on a GPU without a cache.
- "hbm": what an L2 of a given size lets through to HBM, an approximation: see `flashlab.flows.Flow`.
"""

from dataclasses import dataclass

from flashlab import flows, flows_backward, gpus
from flashlab.errors import unknown_name

LEVELS = ("sm", "hbm")
ALGORITHMS = {
    ("standard", "forward"): (flows.standard_forward,),
    ("standard", "backward"): (flows_backward.standard_backward,),
    ("fa1", "forward"): (flows.fa1_forward,),
    ("fa1", "backward"): (flows_backward.fa1_backward,),
    ("fa2", "forward"): (flows.fa2_forward,),
    ("fa2", "backward"): (flows_backward.fa2_delta, flows_backward.fa2_dkdv, flows_backward.fa2_dq),
    ("fa2", "delta"): (flows_backward.fa2_delta,),
    ("fa2", "dkdv"): (flows_backward.fa2_dkdv,),
    ("fa2", "dq"): (flows_backward.fa2_dq,),
    ("decode", "forward"): (flows.decode,),
}
NAMES = ("standard", "fa1", "fa2", "decode")


@dataclass(frozen=True)
class Traffic:
    """Bytes and work of one algorithm on one problem at one level.

    `flows` list every (op, tensor); `flops` are those of the matrix products that are carried out (tiles
    above the diagonal are skipped, the tiles on it computed whole), `other_flops` all other arithmetic, with
    `exps` exponentials; `extra_bytes` is the memory beyond inputs and outputs (lse counts as extra).
    """

    problem: object
    algorithm: str
    direction: str
    level: str
    flows: tuple
    flops: int
    other_flops: int
    exps: int
    extra_bytes: int
    l2_bytes: int | None = None

    def bytes(self, op=None, tensor=None):
        """Bytes moved by `op` ("load", "store"; None: both) of `tensor` (None: all)."""
        return sum(n for o, t, n in self.table() if op in (None, o) and tensor in (None, t))

    def table(self):
        """[(op, tensor, bytes), ...] in the order of first use."""
        rows = {}
        for flow in self.flows:
            n = flow.bytes if self.level == "sm" else flow.hbm
            rows[flow.op, flow.tensor] = rows.get((flow.op, flow.tensor), 0) + n
        return [(*key, n) for key, n in rows.items()]

    @property
    def intensity(self):
        """Matrix FLOPs per byte moved at this level."""
        moved = self.bytes()
        return self.flops / moved if moved else 0.0

    def time(self, gpu):
        """(seconds, "memory" | "compute"): the longer of bytes / bandwidth and FLOPs / peak, a lower bound.

        The bandwidth is that of HBM; at level "sm" this is the papers' view, a GPU whose L2 catches nothing.
        """
        gpu = gpus.get(gpu)
        memory = self.bytes() / gpu.hbm_bandwidth
        compute = self.flops / gpu.peak_of(self.problem.dtype)
        return (memory, "memory") if memory >= compute else (compute, "compute")


def traffic(
    problem,
    algorithm,
    direction="forward",
    level="sm",
    *,
    gpu=None,
    l2_bytes=None,
    in_flight=None,
    splits=None,
    tma=False,
):
    """The `Traffic` of `algorithm` ("standard" | "fa1" | "fa2" | "decode") on a `flashlab.Problem`.

    `direction`: "forward" | "backward", for "fa2" also its passes "delta", "dkdv", "dq". Level "hbm" needs a
    `gpu` (name or GPU) or `l2_bytes`; `in_flight` is how many programs run at once (default: one on each SM).
    "decode" reads the problem as Nq new tokens, the last of Nk in the cache (whatever `causal` says), with
    `splits` parts of the keys (default: what the kernel chooses for the GPU). `tma`: FA2 loads key blocks on
    the diagonal whole, as its kernels do with TMA descriptors. Raises ValueError.
    """
    if algorithm not in NAMES:
        raise unknown_name("algorithm", algorithm, NAMES)
    known = [d for a, d in ALGORITHMS if a == algorithm]
    if direction not in known:
        raise unknown_name(f"direction of {algorithm}", direction, known)
    if level not in LEVELS:
        raise unknown_name("level", level, LEVELS)
    gpu = None if gpu is None else gpus.get(gpu)
    if level == "hbm" and l2_bytes is None:
        if gpu is None:
            raise ValueError('level "hbm" needs the size of the L2 cache: pass gpu="H200" or l2_bytes=...')
        l2_bytes = gpu.l2_shared
    sms = gpu.sms if gpu else 132
    how = flows.How(in_flight or sms, sms, splits, tma, l2_bytes or 0)
    found, flops, other, exps, extra = [], 0, 0, 0, 0
    for part in ALGORITHMS[algorithm, direction]:
        result = part(problem, how)
        found += result.flows
        flops, other, exps = flops + result.flops, other + result.other_flops, exps + result.exps
        extra += result.extra_bytes
    return Traffic(problem, algorithm, direction, level, tuple(found), flops, other, exps, extra, l2_bytes)


def kept(problem, algorithm, dropout=0.0, layers=1, training=True):
    """What lies in memory, as a dict tensor -> bytes; "standard" or "fa1"/"fa2".

    Training keeps for the backward pass, in each of `layers` layers, q, k, v, o and: "standard": P (with
    dropout also the dropped P, and the mask, 1 byte an element); FlashAttention: lse (with dropout a seed, 8
    bytes). S lives in one layer at a time: softmax's backward needs only P. Inference keeps the K/V cache of
    all layers, and the rest for one layer at a time.
    """
    if algorithm not in NAMES:
        raise unknown_name("algorithm", algorithm, NAMES)
    if not 0 <= dropout <= 1:
        raise ValueError(f"expected dropout from 0 to 1, got {dropout}")
    if not isinstance(layers, int) or layers < 1:
        raise ValueError(f"expected layers to be a whole number >= 1, got {layers!r}")
    p, many = problem, layers if training else 1
    rows, keys, square = p.B * p.Hq * p.Nq, p.B * p.Hkv * p.Nk, p.B * p.Hq * p.Nq * p.Nk
    result = {"q": many * rows * p.D * p.itemsize}
    k, v = ("k", "v") if training else ("k_cache", "v_cache")
    result |= dict.fromkeys((k, v), layers * keys * p.D * p.itemsize)
    if algorithm == "standard":
        result["s"] = square * p.itemsize
        result["p"] = many * square * p.itemsize
        if dropout and training:
            result |= {"p_dropped": many * square * p.itemsize, "mask": many * square}
    else:
        result["lse"] = many * rows * 4
        if dropout and training:
            result["seed"] = many * 8
    return result | {"o": many * rows * p.D * p.itemsize}
