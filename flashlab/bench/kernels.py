"""The suite `kernels`: forward and backward speed at 16,384 tokens and hidden size 2048, beside the peers,
in one run.

Inputs are new in every run, L2 is flushed before it, and the results of the timed runs are checked against
the formula in a wider format before a time counts (`flashlab.bench.work`). Each time stands beside two floors
(`flashlab.bench.floors`) and the clock of the SMs before and after.
"""

import itertools

from flashlab.bench.floors import floors, known
from flashlab.bench.floors import flops as flops
from flashlab.bench.peers import Absent, all_peers, check_names, installed, make

TOKENS, HIDDEN = 16384, 2048
LENGTHS, QUICK_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384), (1024, 4096)
DIRECTIONS = ("forward", "backward")
COLUMNS = "direction dtype      D      N mask   peer             FLOP/s        ms"
HEAD = COLUMNS + "  floor"  # percent of it


def cases(dtypes=("float16", "bfloat16"), dims=(64, 128), lengths=LENGTHS, causal=(False, True)):
    """The grid of cases, as dicts with dtype, D, N, causal, B, H. Raises ValueError for sizes below 1."""
    check_sizes(lengths, dims)
    for dtype, d, c, n in itertools.product(dtypes, dims, causal, lengths):
        yield dict(dtype=dtype, D=d, N=n, causal=c, B=max(1, TOKENS // n), H=max(1, HIDDEN // d))


def plan(which, names=None, directions=DIRECTIONS):
    """[(case, direction, peer), ...] in the order in which they are measured; all peers that are installed
    where none are named. Raises ValueError for an unknown peer or direction.
    """
    check_names(names or (), all_peers())
    check_names(directions, DIRECTIONS, "direction")
    return list(itertools.product(which, directions, names or installed()))


def check_sizes(lengths, dims):
    """Raise ValueError for a sequence length or head dimension below 1."""
    for name, sizes in (("lengths", lengths), ("dims", dims)):
        if min(sizes, default=1) < 1:
            raise ValueError(f"expected {name} from 1 up, got {min(sizes)}")


def run(
    which,
    peers=None,
    directions=DIRECTIONS,
    say=print,
    *,
    where="cuda",
    device=None,
    peak=None,
):
    """Measure every case with every peer; yields a dict for each (or with "error": why there is no time).

    `where`, `device` and `peak` are for tests without a GPU: the torch device, a `timing.Device`, and what
    weighs a call.
    """
    from flashlab.bench.memory import peak_on_gpu
    from flashlab.bench.timing import Cuda

    device, peak = device or Cuda(), peak or peak_on_gpu
    made, gpu = {}, this_gpu(where)
    say(HEAD)
    for case, direction, name in plan(list(which), peers, directions):
        row = dict(case, direction=direction, peer=name)
        try:
            if name not in made:
                made[name] = make(name)
            row |= measure(made[name], case, direction, name, where, device, peak)
            row |= floors(case, direction, row["ms"], gpu)
        except Exception as problem:  # a peer that cannot do a case is a result, too
            row["error"] = reason(problem)
        yield row
        say(line(row))


def measure(attend, case, direction, name, where, device, peak):
    """The fields of one peer on one case, with the clock before and after."""
    from flashlab.bench.clocks import sm_mhz
    from flashlab.bench.work import how_many_sets, measured

    before = sm_mhz()
    row = measured(attend, case, direction, device, where, peak, sets=how_many_sets(case, name, free(where)))
    return row | dict(clock_mhz=[before, sm_mhz()])


def free(where):
    """Bytes of memory that are free on a torch device."""
    if where == "cpu":
        from flashlab.bench.sdpa_paths import free_bytes

        return free_bytes()
    import torch

    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def this_gpu(where):
    """The table's GPU for this torch device, or None where it is not in the table."""
    import torch

    return known(torch.cuda.get_device_name()) if where == "cuda" else None


def reason(problem):
    """Why there is no time, in one line."""
    name = "" if isinstance(problem, Absent) else f"{type(problem).__name__}: "
    return f"{name}{' '.join(str(problem).split())}"[:300]


def line(row):
    """One line of progress, in the columns of HEAD."""
    mask = "causal" if row["causal"] else "full"
    head = f"{row['direction']:9} {row['dtype']:8} {row['D']:3} {row['N']:6} {mask:6} {row['peer']:14} "
    if "ms" not in row:
        return head + row["error"]
    floor = f" {row['percent_of_floor']:4.0f} %" if row.get("percent_of_floor") else ""
    return f"{head}{rate(row['tflops']):>8} {row['ms']:9.3f}{floor}"


def rate(tflops):
    """TFLOP/s as text: "312.4 T", "35.6 G"."""
    factor, unit = next(((f, u) for f, u in ((1, "T"), (1e3, "G")) if f * tflops >= 1), (1e6, "M"))
    return f"{factor * tflops:.1f} {unit}"
