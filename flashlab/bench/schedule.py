"""The suite `schedule`: how long grids of different shapes take, beside what `flashlab.schedule` predicts.

B * H * N is fixed, so that all cases move the same tokens: FA1's grid has B * H programs, FA2's B * H * N /
block_q. Under a causal mask FA2's blocks are started in three orders. Three launches that are no cases
calibrate each kernel: the time of a tile step, what a program costs beside its tiles, and how fast an SM is
with one program only. Everything else is predicted from these. Launches are timed inside CUDA graphs, because
a short kernel takes less time than the host needs to launch it.
"""

import dataclasses
from typing import NamedTuple

from flashlab import gpus, schedule
from flashlab.problem import Problem

TOKENS = {"fa1": 73728, "fa2": 393216}  # B * H * N; what FA1 goes round on must fit into half of an H200's L2
HEADS = (4, 16, 132, 133, 264)
CAUSAL_HEADS = (4, 16, 64)
D = 64
GOAL = 0.15


class Calibration(NamedTuple):
    """`step_ms`: a tile step on an SM at full speed; `alone`: see `schedule.simulate`; `overhead`: tile steps
    of a program beside its tiles, for FA1 of each of its query blocks.
    """

    step_ms: float
    alone: float
    overhead: float


def length(algorithm, heads):
    """N for `heads` heads: their share of the tokens, rounded to whole blocks."""
    multiple = 64 if algorithm == "fa1" else 128
    return max(round(TOKENS[algorithm] / heads / multiple), 1) * multiple


def problem_of(algorithm, heads, n, config, causal=False):
    """The Problem of a case on this launch configuration (block_q, block_k)."""
    return Problem(Hq=heads, Nq=n, D=D, causal=causal, block_q=config[0], block_k=config[1])


def calibration_sizes(algorithm, per_sm, sms, config):
    """[(heads, N), ...]: two launches of one program on an SM, short and long, and one that fills all slots
    evenly.
    """
    if algorithm == "fa1":
        fit = int(0.8 * TOKENS["fa1"]) // (sms * per_sm) // 64 * 64
        return [(32, 576), (32, 2304), (sms * per_sm, max(fit, 64))]
    return [(2, sms // 2 * config[0]), (1, sms * config[0]), (sms * per_sm, 20 * max(config[:2]))]


def program_steps(algorithm, heads, n, config):
    """(tile steps of a program, what its overhead is counted in, programs), all seeing all keys."""
    queries, keys = -(-n // config[0]), -(-n // config[1])
    return (queries * keys, queries, heads) if algorithm == "fa1" else (keys, 1, heads * queries)


def calibrate(algorithm, per_sm, sms, config, milliseconds):
    """The `Calibration` from the three times of `calibration_sizes`."""
    sizes = calibration_sizes(algorithm, per_sm, sms, config)
    (w1, u1, _), (w2, u2, _), (w3, u3, n3) = (program_steps(algorithm, *s, config) for s in sizes)
    t1, t2, t3 = milliseconds
    # one program on an SM: (w + overhead * u) * step / alone
    step_alone = (t2 / u2 - t1 / u1) / (w2 / u2 - w1 / u1)
    overhead = max(t1 / u1 / step_alone - w1 / u1, 0.0)
    # a full SM: that many programs share it, wave after wave
    step = t3 / (n3 / sms) / (w3 + overhead * u3)
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


def run(say=print):
    """Measure and predict; yields one dict a case, and one for each calibration."""
    gpu = this_gpu()
    for algorithm, causal in (("fa1", False), ("fa2", False), ("fa2", "top-left")):
        try:
            config, per_sm, limit = resources(algorithm, causal, gpu)
            sizes = calibration_sizes(algorithm, per_sm, gpu.sms, config)
            times = [measure(algorithm, *size, config) for size in sizes]
            found = calibrate(algorithm, per_sm, gpu.sms, config, times)
        except Exception as problem:  # the other kernels can still be measured
            say(f"{algorithm}: {type(problem).__name__}: {problem}")
            yield dict(algorithm=algorithm, causal=causal, error=f"{type(problem).__name__}: {problem}"[:300])
            continue
        head = dict(algorithm=algorithm, D=D, causal=causal, config=list(config), programs_per_sm=per_sm)
        say(f"{algorithm} {per_sm} programs on an SM ({limit}), {found}")
        yield head | dict(limit=limit, sizes=sizes, calibration_ms=times, **found._asdict())
        rows = []
        for heads in CAUSAL_HEADS if causal else HEADS:
            for order in schedule.ORDERS if causal else ("natural",):
                n = length(algorithm, heads)
                ms = measure(algorithm, heads, n, config, causal, order)
                predicted = predict(algorithm, heads, n, config, gpu, per_sm, found, causal, order)
                rows.append(
                    head | dict(heads=heads, N=n, order=order, ms=ms, cache="warm", predicted_ms=predicted)
                )
        if causal:
            for heads in CAUSAL_HEADS:
                mine = [row for row in rows if row["heads"] == heads]
                ratios(mine, lambda row: row["order"] == "reversed")
        else:
            ratios(rows, lambda row: row["heads"] == 132)
        for row in rows:
            say(line(row))
            yield row


def this_gpu():
    """The table's GPU for the CUDA device, with its own number of SMs and its own L2."""
    import torch

    props = torch.cuda.get_device_properties(0)
    names = [name for name in gpus.ALL if all(part in props.name for part in name.split()[:1])]
    gpu = gpus.get(names[0] if names else "H200")
    return dataclasses.replace(
        gpu, name=props.name, sms=props.multi_processor_count, l2_bytes=props.L2_cache_size, exp_rate=None
    )


def attend(algorithm, q, k, v, config, causal, order):
    """Launch one kernel."""
    from flashlab.bench import orders
    from flashlab.kernels import fa1

    run_kernel = fa1.forward if algorithm == "fa1" else orders.forward(order or "natural")
    return run_kernel(q, k, v, causal=causal or None, scale=D**-0.5, config=config)


def inputs(heads, n, device="cuda"):
    """q, k and v [1, heads, N, D], fp16."""
    import torch

    torch.manual_seed(0)
    return [torch.randn(1, heads, n, D, device=device, dtype=torch.float16) for _ in "qkv"]


def resources(algorithm, causal, gpu):
    """(Config, programs on an SM, what limits them) of the shipped kernel, from its registers and memory."""
    from flashlab.kernels.launch import capture, config_for

    q, k, v = inputs(1, 1024)
    config = config_for(q, "fa1" if algorithm == "fa1" else "forward" if causal else "forward simple")
    with capture() as calls:
        attend(algorithm, q, k, v, config, causal, "reversed")
    kernel, args, options = calls[0]
    try:
        compiled = kernel.warmup(*args, grid=(1,), **options)
        compiled._init_handles()
        registers, shared = compiled.n_regs, compiled.metadata.shared
    except Exception as problem:  # not a public interface; the shipped configurations aim at two
        return config, 2, f"assumed, because {type(problem).__name__}: {problem}"[:200]
    per_sm, limit = gpu.residents(config.num_warps, registers, shared)
    return config, max(per_sm, 1), f"{limit}: {registers} registers, {shared} bytes shared"


def measure(algorithm, heads, n, config, causal=False, order="natural"):
    """Median milliseconds of one launch, checked against the shipped order before its time counts."""
    import torch

    from flashlab.bench.timing import time_graph

    q, k, v = inputs(heads, n)
    if order != "reversed" and algorithm == "fa2":
        got, want = (attend(algorithm, q, k, v, config, causal, o)[0] for o in (order, "reversed"))
        if not torch.equal(got, want):
            raise AssertionError(f"the order {order} changes results")
    return time_graph(lambda: attend(algorithm, q, k, v, config, causal, order)).median


def line(row):
    """One line of progress."""
    return (
        f"{row['algorithm']} heads {row['heads']:3} N {row['N']:5} {'causal' if row['causal'] else 'full':6} "
        f"{row['order']:13} {row['ms']:8.3f} ms (predicted {row['predicted_ms']:8.3f})  "
        f"ratio {row['ratio']:.3f} predicted {row['predicted_ratio']:.3f} ({row['off']:+.1%})"
    )
