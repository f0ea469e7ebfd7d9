"""The suite `decode`: one new token against long caches, in bytes of K and V read per second, with the peers.

Each peer's calls are captured in one CUDA graph, so that the host does not count, over several caches in
turn, 512 MB or more together, so that nothing is in L2 when it is needed. The graphs of all peers, and a copy
that shows what the memory can do, are replayed in turn, so that a GPU that gets warm slows all of them alike.
The query is new in each round, results are poisoned before each replay, and those of the last timed replay,
one for each cache, are checked before a time counts.
"""

import functools
import statistics
from typing import NamedTuple

from flashlab.bench.floors import against
from flashlab.bench.kernels import reason, this_gpu
from flashlab.bench.memory import peak_on_gpu
from flashlab.bench.peers import Absent
from flashlab.bench.timing import Cuda

ROTATION_BYTES = 512 * 10**6  # the caches of one graph together, at least; and always two caches
GRAPH_BYTES = 4 * 10**9  # one replay reads as much: about a millisecond on an H200
COPY_BYTES = 2**30
PEERS = ("decode", "sdpa-cudnn", "sdpa-flash")
HEAD = "  B  Hq Hkv     Nk   D peer             TB/s of copy       us low-high"


class Case(NamedTuple):
    """One new token of each of B sequences with Nk keys."""

    B: int
    Hq: int
    Hkv: int
    Nk: int
    D: int
    dtype: str = "bfloat16"

    @property
    def kv_bytes(self):
        """Bytes of K and V, 2 for each number."""
        return 2 * self.B * self.Hkv * self.Nk * self.D * 2

    @property
    def caches(self):
        """How many different caches take turns."""
        return max(2, -(-ROTATION_BYTES // self.kv_bytes))

    @property
    def calls(self):
        """Calls in one graph: every cache equally often."""
        return self.caches * max(1, round(GRAPH_BYTES / (self.caches * self.kv_bytes)))


CASES = (
    Case(1, 32, 8, 8192, 128),
    Case(1, 32, 8, 65536, 128),
    Case(16, 32, 8, 8192, 128),
    Case(64, 32, 8, 4096, 128),
    Case(1, 32, 32, 32768, 128),
    Case(16, 32, 32, 4096, 64),
)


def run(cases=CASES, peers=None, rounds=20, say=print):
    """Measure every case; yields one dict for each peer (or with "error": why there is none)."""
    say(HEAD)
    for case in cases:
        for row in measure(case, peers or PEERS, rounds):
            yield row
            say(line(row))


def measure(case, peers, rounds, where="cuda", device=None, capture=None, peak=peak_on_gpu):
    """The rows of one case: graphs of all peers, replayed in turn.

    `where`, `device`, `capture` and `peak` are for tests without a GPU: the torch device, a `timing.Device`,
    what takes the place of `Graph`, and what weighs a call.
    """
    import torch

    from flashlab.bench.clocks import sm_mhz

    torch.manual_seed(0)
    device, capture, dtype = device or Cuda(flush_bytes=0), capture or Graph, getattr(torch, case.dtype)
    q = torch.randn(case.B, case.Hq, 1, case.D, device=where, dtype=dtype)
    shape = case.B, case.Hkv, case.Nk, case.D
    caches = [[torch.randn(shape, device=where, dtype=dtype) for _ in range(2)] for _ in range(case.caches)]
    lengths = torch.full((case.B,), case.Nk, dtype=torch.int32, device=where)
    source, target = (torch.randn(COPY_BYTES // 4, device=where) for _ in range(2))
    # An elementwise kernel: in a graph, copy_ becomes a memory copy node that reaches two thirds of this.
    graphs, peaks, problems = {"copy": capture([lambda: torch.neg(source, out=target)] * 4)}, {}, {}
    for name in peers:
        try:
            attend = make_peer(name)
            check(attend(q, *caches[0], lengths), q, *caches[0])
            peaks[name] = peak(lambda attend=attend: attend(q, *caches[0], lengths))
            calls = [
                functools.partial(attend, q, *caches[i % case.caches], lengths) for i in range(case.calls)
            ]
            graphs[name] = capture(calls, keep=case.caches)
        except Exception as problem:  # a peer that cannot do a case is a result, too
            problems[name] = reason(problem)
    before = sm_mhz()
    times = replay_in_turn(graphs, rounds, device, lambda: q.normal_())
    how = dict(cache="rotated", clock_mhz=[before, sm_mhz()])
    copy = 4 * 2 * COPY_BYTES / statistics.median(times["copy"]) / 1e9  # TB/s: bytes per ms / 1e9
    for name in peers:
        row = dict(case._asdict(), peer=name, kv_mb=case.kv_bytes / 1e6, copy_tbs=copy)
        try:
            if name in problems:
                raise Absent(problems[name])
            error = max(check(o, q, *kv) for o, kv in zip(graphs[name].results, caches, strict=True))
            row |= summary(case, times[name], copy) | how | dict(max_error=error, peak_bytes=peaks[name])
            work = 4 * case.B * case.Hq * case.Nk * case.D
            row |= against(case.kv_bytes, work, case.dtype, row["us"] / 1e3, this_gpu(where))
        except (AssertionError, Absent) as problem:
            row["error"] = str(problem)
        yield row


def summary(case, milliseconds, copy_tbs):
    """Microseconds of a call (median, 20th and 80th percentile), TB/s of K and V, and percent of the copy's.

    `milliseconds`: of each replay of a graph of `case.calls` calls.
    """
    calls = sorted(1e3 * ms / case.calls for ms in milliseconds)
    median, fifth = statistics.median(calls), len(calls) // 5
    speed = case.kv_bytes / median / 1e6
    return dict(
        us=median,
        low=calls[fifth],
        high=calls[-1 - fifth],
        runs=len(calls),
        tbs=speed,
        percent_of_copy=100 * speed / copy_tbs,
    )


class Graph:
    """One CUDA graph of all calls, captured after a warm-up. `results`: of its last `keep` calls; a replay
    writes them anew.
    """

    def __init__(self, calls, keep=0):
        import torch

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for call in calls[:3]:
                call()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph, self.results = torch.cuda.CUDAGraph(), []
        with torch.cuda.graph(self.graph):
            for i, call in enumerate(calls):
                result = call()
                if i >= len(calls) - keep:
                    self.results.append(result)

    def replay(self):
        self.graph.replay()


def replay_in_turn(graphs, rounds, device, renew):
    """Milliseconds of each replay: a list for each name. Two rounds more come first and do not count.

    Outside the times, `renew()` changes the inputs before each round, and what the last replay wrote is
    poisoned before the next one.
    """
    marks = {name: [] for name in graphs}
    for _ in range(rounds + 2):
        renew()
        for name, graph in graphs.items():
            for result in graph.results:
                result.fill_(float("nan"))
            start = device.record()
            graph.replay()
            marks[name].append((start, device.record()))
        device.synchronize()
    return {name: [device.elapsed(*pair) for pair in pairs[2:]] for name, pairs in marks.items()}


def make_peer(name):
    """A function (q, k, v, lengths) -> o. "decode:16" is ours with 16 splits, "decode:16:32,64,4,3" also with
    that Config (block_q, block_k, warps, stages); "decode::32,64,4,3" with that Config only.
    """
    if name == "decode":
        from flashlab import decode_attention

        return decode_attention
    if name.startswith("decode:"):
        return variant(*read_variant(name))
    backends = {"sdpa-flash": "FLASH_ATTENTION", "sdpa-cudnn": "CUDNN_ATTENTION"}
    if name not in backends:
        from flashlab.errors import unknown_name

        raise unknown_name("peer", name, [*PEERS, "decode:SPLITS:CONFIG"])
    return sdpa(backends[name])


def read_variant(name):
    """(splits or None, Config or None) of "decode:SPLITS:BLOCK_Q,BLOCK_K,WARPS,STAGES"."""
    from flashlab.kernels.launch import Config

    splits, _, config = name.removeprefix("decode:").partition(":")
    return int(splits) if splits else None, Config(*map(int, config.split(","))) if config else None


def variant(splits, config):
    """Our kernels with a number of splits and a Config."""
    from flashlab.kernels.decode import decode

    def attend(q, k, v, lengths):
        return decode(q, k, v, lengths, num_splits=splits, scale=q.shape[-1] ** -0.5, config=config)[0]

    return attend


def sdpa(backend):
    """PyTorch's scaled_dot_product_attention held to one backend; it takes whole caches only."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def attend(q, k, v, lengths):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])

    return attend


def check(o, q, k, v):
    """Largest error of o against the formula in float32; raises AssertionError if it is no rounding error."""
    import torch

    grouped = q.float().reshape(*k.shape[:2], -1, q.shape[-1])  # [B, Hkv, group, D]
    p = torch.softmax(grouped @ k.float().mT * q.shape[-1] ** -0.5, -1)
    want = (p @ v.float()).reshape(q.shape)
    error = (o.float() - want).abs().max().item()
    allowed = 4 * torch.finfo(o.dtype).eps * want.abs().max().item()
    if not error <= allowed:
        raise AssertionError(f"wrong result: largest error {error:.3g}, allowed {allowed:.3g}")
    return error


def line(row):
    """One line of progress, in the columns of HEAD."""
    case = f"{row['B']:3} {row['Hq']:3} {row['Hkv']:3} {row['Nk']:6} {row['D']:3} {row['peer']:14}"
    if "error" in row:
        return f"{case} {row['error']}"
    speed = f"{row['tbs']:6.3f} {row['percent_of_copy']:5.1f} %"
    return f"{case} {speed} {row['us']:8.1f} {row['low']:.1f}-{row['high']:.1f}"
