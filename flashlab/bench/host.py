"""The suite `host`: what a call of flashlab.attention costs the CPU beyond launching its kernels.

The same kernel is launched directly, with everything ready (`kernel[grid](...)`), and through the public
call, on a problem so small that the GPU is never the one that is waited for. A time is that of the host from
call to return, the mean of `CALLS` calls in a row; of `ROUNDS` such means the least counts (what else the
machine does only adds), the largest shows the spread. A way's result is checked, in memory that held NaN,
before its time counts.
"""

import time

CALLS, ROUNDS = 1000, 5


def run(say=print, where="cuda"):
    """Microseconds a call, without and with gradients; yields one dict a measurement. `where`: for tests."""
    import torch

    import flashlab
    from flashlab.bench.clocks import sm_mhz
    from flashlab.bench.kernels import reason
    from flashlab.bench.peers import standard

    q, k, v = (torch.randn(1, 8, 128, 64, device=where, dtype=torch.bfloat16) for _ in range(3))
    direct = direct_launch(q, k, v)
    grads = [x.clone().requires_grad_() for x in (q, k, v)]
    ways = {
        "kernel[grid]": direct,
        "attention, no_grad": lambda: flashlab.attention(q, k, v, backend="fa2"),
        "attention, with grad": lambda: flashlab.attention(*grads, backend="fa2"),
        "sdpa, no_grad": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v),
    }
    with torch.no_grad():
        want = standard(*(x.float() for x in (q, k, v)), False)
    bare = None
    for name, call in ways.items():
        row = dict(way=name)
        try:
            error = check(call, want)
            before = sm_mhz()
            times = [microseconds(call) for _ in range(ROUNDS)]
            bare = min(times) if call is direct else bare
            row |= dict(us=min(times), most_us=max(times), rounds=ROUNDS, max_error=error)
            row |= dict(over_launch=min(times) - bare if bare else None, clock_mhz=[before, sm_mhz()])
        except Exception as problem:  # the other ways can still be measured
            row["error"] = reason(problem)
        yield row
        say(line(row))


def line(row):
    """One line of progress."""
    if "error" in row:
        return f"{row['way']:20} {row['error']}"
    over = "" if row["over_launch"] is None else f", {row['over_launch']:+6.1f} beside the bare launch"
    return f"{row['way']:20} {row['us']:6.1f} us a call{over}"


def check(call, want):
    """The largest error of a call's result in poisoned memory; raises AssertionError where it is wrong."""
    from flashlab.bench.expected import error
    from flashlab.bench.work import PATIENT

    call().detach().fill_(float("nan"))
    return error([call().detach()], [want], PATIENT["bfloat16"])


def direct_launch(q, k, v):
    """A function that launches the forward kernel with its arguments ready, and returns its o."""
    from flashlab.kernels import fa2, launch

    with launch.capture() as calls:
        o, _ = fa2.forward(q, k, v, scale=q.shape[-1] ** -0.5)
    ((kernel, args, options),) = calls
    grid = (-(-q.shape[2] // options["BLOCK_Q"]) * q.shape[0] * q.shape[1],)
    run_kernel = kernel[grid]

    def launch_it():
        run_kernel(*args, **options)
        return o

    return launch_it


def microseconds(call):
    """The mean over many calls of the time until a call returns."""
    import torch

    for _ in range(20):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    spent = time.perf_counter() - start
    torch.cuda.synchronize()
    return spent / CALLS * 1e6
