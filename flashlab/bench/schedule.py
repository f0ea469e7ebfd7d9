"""The suite `schedule`: how long grids of different shapes take, beside what `flashlab.schedule` predicts.

B * H * N is fixed, so that all cases move the same tokens: FA1's grid has B * H programs, FA2's B * H * N /
block_q. Under a causal mask FA2's blocks are started in three orders. A few launches that are no cases
calibrate each kernel: the time of a tile step, what a program costs beside its tiles, and how fast an SM is
with one program only. Everything else is predicted from these: also an SM with two programs of three, for
which `flashlab.sharing` needs nothing else. How launches are timed and checked: flashlab/bench/grids.py.

On an H200 (December 2026) three laws for two programs of three were compared, from one calibration. They
differ where FA1's last program is one of two on an SM. 133 heads: the queue is off by 5 %, a straight line
between one program and three by 17 %, programs that are never in each other's way by -8 %; 264 heads: by -1,
11 and -13 %. For FA2 all three are right to about 5 %.

What the model leaves out: a tile step of FA1 takes longer in longer heads. Alone on an SM it is 3 %
longer at N 4608 and 13 % at N 18,432 than where it was calibrated (N 576 and 2304), so that 4 heads are
predicted 12 % too quick. From N 2304 on the tokens, so what L2 has to keep, are the same; but a program comes
back to the same O, Q, m and l after 0.9 MB there, and after 7.2 MB at N 18,432. Why, the times do not say.

How sure the calibration is: in a second run an hour later FA1's shortest calibrating launch (32 heads, N 576)
took 0.211 ms instead of 0.181, while all cases took the same time within 2 %. FA1's predictions hang on that
launch: they were then off by up to 30 % (2 of 5 within the goal), FA2's 14 by 5 % at most, as before.
"""

from typing import NamedTuple

from flashlab import schedule
from flashlab.bench.grids import D, Launch
from flashlab.problem import Problem

TOKENS = {"fa1": 73728, "fa2": 393216}  # B * H * N; what FA1 goes round on must fit into half of an H200's L2
HEADS = (4, 16, 132, 133, 264)
CAUSAL_HEADS = (4, 16, 64)
GOAL = 0.15


class Calibration(NamedTuple):
    """`step_ms`: a tile step on an SM at full speed; `alone`: see `schedule.simulate`; `overhead`: tile steps
    of a program beside its tiles, for FA1 of each of its query blocks.
    """

    step_ms: float
    alone: float
    overhead: float


class Work(NamedTuple):
    """What a launch does: tile steps of its longest program and of the mean one, what an overhead is counted
    in (FA1: query blocks of a program), and its programs.
    """

    longest: float
    mean: float
    units: int
    programs: int


def length(algorithm, heads):
    """N for `heads` heads: their share of the tokens, rounded to whole blocks."""
    multiple = 64 if algorithm == "fa1" else 128
    return max(round(TOKENS[algorithm] / heads / multiple), 1) * multiple


def problem_of(algorithm, heads, n, config, causal=False):
    """The Problem of a case on this launch configuration (block_q, block_k)."""
    return Problem(Hq=heads, Nq=n, D=D, causal=causal, block_q=config[0], block_k=config[1])


def calibration_sizes(algorithm, per_sm, sms, config):
    """[(heads, N), ...]: two launches of one program on an SM, short and long, then launches that fill all
    slots evenly. FA1: one of these, for two different ones would have to leave L2. N is whole blocks, else
    another kernel runs.
    """
    if algorithm == "fa1":
        fit = int(0.8 * TOKENS["fa1"]) // (sms * per_sm) // 64 * 64
        return [(32, 576), (32, 2304), (sms * per_sm, max(fit, 64))]
    block = max(config[:2])
    singles = [(heads, sms // heads * config[0] // block * block) for heads in (2, 1)]
    return [*singles, (sms * per_sm, 10 * block), (sms * per_sm, 40 * block)]


def work(algorithm, heads, n, config, causal=False):
    """The `Work` of a launch."""
    steps = [
        i.work
        for i in schedule.work_items(problem_of(algorithm, heads, n, config, causal), algorithm, "H200")
    ]
    units = -(-n // config[0]) if algorithm == "fa1" else 1
    return Work(max(steps), sum(steps) / len(steps), units, len(steps))


def calibrate(algorithm, per_sm, sms, config, milliseconds, causal=False):
    """The `Calibration` from the times of `calibration_sizes`.

    One program on an SM: t = (longest + overhead * units) * step / alone. A GPU whose slots are full, wave
    after wave: t = programs / sms * (mean + overhead * units) * step. FA2's overhead comes from the full
    launches, where other programs hide a part of it, and where the gap between two launches counts least.
    """
    sizes = calibration_sizes(algorithm, per_sm, sms, config)
    short, long, *full = (work(algorithm, *size, config, causal) for size in sizes)
    t1, t2, *times = milliseconds
    a1, a2 = short.longest / short.units, long.longest / long.units
    step_alone = (t2 / long.units - t1 / short.units) / (a2 - a1)
    each = [t * sms / f.programs for t, f in zip(times, full, strict=True)]  # of a program, if it had an SM
    if len(full) == 2:
        step = (each[1] - each[0]) / (full[1].mean - full[0].mean)
        overhead = max(each[0] / step - full[0].mean, 0.0)
    else:
        overhead = max(t1 / short.units / step_alone - a1, 0.0)
        step = each[0] / (full[0].mean + overhead * full[0].units)
    if not (step > 0 and step_alone > 0):
        raise ValueError(f"expected longer launches to take longer, got {milliseconds} ms for {sizes}")
    return Calibration(step, min(max(step / step_alone, 1 / per_sm), 1.0), overhead)


def predict(algorithm, heads, n, config, gpu, per_sm, found, causal=False, order=None):
    """Milliseconds of a case, from a calibration."""
    queries = -(-n // config[0]) if algorithm == "fa1" else 1
    timeline = schedule.simulate(
        problem_of(algorithm, heads, n, config, causal), algorithm, gpu, order,
        programs_per_sm=per_sm, alone=found.alone, overhead=found.overhead * queries,
    )  # fmt: skip
    return timeline.makespan * found.step_ms


def ratios(rows, base):
    """Each row's time over that of the row for which `base(row)` holds, measured and predicted, and how far
    the prediction is off. Sets row["ratio"], row["predicted_ratio"], row["off"], row["ok"].
    """
    reference = next(row for row in rows if base(row))
    for row in rows:
        row["ratio"] = row["ms"] / reference["ms"]
        row["predicted_ratio"] = row["predicted_ms"] / reference["predicted_ms"]
        row["off"] = row["predicted_ratio"] / row["ratio"] - 1
        row["ok"] = abs(row["off"]) <= GOAL
    return rows


def cases(algorithm, causal):
    """The launches that are compared."""
    if not causal:
        return [Launch(heads, length(algorithm, heads), False, "natural") for heads in HEADS]
    sizes = [(heads, length(algorithm, heads)) for heads in CAUSAL_HEADS]
    return [Launch(*size, causal, order) for size in sizes for order in schedule.ORDERS]


def run(say=print):
    """Measure and predict; yields one dict a case, and one for each calibration."""
    from flashlab.bench import device, grids
    from flashlab.bench.kernels import reason

    gpu, note = device.this_gpu()
    if note:
        say(note)
    for algorithm, causal in (("fa1", False), ("fa2", False), ("fa2", "top-left")):
        try:
            config, per_sm, limit = grids.resources(algorithm, causal, gpu)
            sizes = calibration_sizes(algorithm, per_sm, gpu.sms, config)
            first, which = [Launch(*size, causal) for size in sizes], cases(algorithm, causal)
            ms, clocks = grids.measure(algorithm, first + which, config)
            times = [ms[launch] for launch in first]
            found = calibrate(algorithm, per_sm, gpu.sms, config, times, causal)
        except Exception as problem:  # the other kernels can still be measured
            yield dict(algorithm=algorithm, causal=causal, error=reason(problem))
            say(f"{algorithm}: {reason(problem)}")
            continue
        head = dict(algorithm=algorithm, D=D, causal=causal, config=list(config), programs_per_sm=per_sm)
        head |= dict(clock_mhz=clocks) | (dict(gpu_note=note) if note else {})
        yield head | dict(limit=limit, sizes=sizes, calibration_ms=times, **found._asdict())
        say(calibrated(head, found))
        rows = compared(which, ms, head, gpu, found)
        for row in rows:
            yield row
            say(line(row))
        say(f"{sum(row['ok'] for row in rows)} of {len(rows)} ratios within {GOAL:.0%}")


def compared(which, ms, head, gpu, found):
    """A row for each launch, with ratios: to 132 heads, or under a mask to the shipped order of as many."""
    algorithm, config, per_sm = (head[name] for name in ("algorithm", "config", "programs_per_sm"))
    rows = []
    for a in which:
        predicted = predict(
            algorithm, a.heads, a.n, config, gpu, per_sm, found, a.causal, a.order if a.causal else None
        )
        row = dict(heads=a.heads, N=a.n, order=a.order, ms=ms[a], cache="warm", predicted_ms=predicted)
        rows.append(head | row)
    if not head["causal"]:
        return ratios(rows, lambda row: row["heads"] == 132)
    for heads in dict.fromkeys(a.heads for a in which):
        ratios([row for row in rows if row["heads"] == heads], lambda row: row["order"] == "reversed")
    return rows


def calibrated(head, found):
    """One line: what a kernel's calibration found."""
    return (
        f"{mark(head)} {head['programs_per_sm']} programs on an SM, a step {1e6 * found.step_ms:.0f} ns, "
        f"overhead {found.overhead:.1f}, alone {found.alone:.2f}"
    )


def line(row):
    """One line of progress."""
    return (
        f"{mark(row)} H {row['heads']:3} N {row['N']:5} {row['order']:13} {row['ms']:8.3f} ms  "
        f"x{row['ratio']:#.3g}, model {row['predicted_ratio']:#.3g} ({row['off']:+.0%})"
    )


def mark(row):
    """The kernel and its mask."""
    return f"{row['algorithm']} {'causal' if row['causal'] else 'full':6}"
