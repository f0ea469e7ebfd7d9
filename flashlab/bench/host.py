"""The suite `host`: what a call of flashlab.attention costs the CPU beyond launching its kernels.

The same kernel is launched directly, with everything ready (`kernel[grid](...)`), and through the public
call, on a problem so small that the GPU is never the one that is waited for.
"""

import time

CALLS = 1000


def run(say=print):
    """Microseconds a call, without and with gradients; yields one dict a measurement."""
    import torch

    import flashlab

    q, k, v = (torch.randn(1, 8, 128, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    direct = direct_launch(q, k, v)
    grads = [x.clone().requires_grad_() for x in (q, k, v)]
    ways = {
        "kernel[grid]": direct,
        "attention, no_grad": lambda: flashlab.attention(q, k, v, backend="fa2"),
        "attention, with grad": lambda: flashlab.attention(*grads, backend="fa2"),
        "sdpa, no_grad": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v),
    }
    least = {}
    for name, call in ways.items():
        least[name] = min(microseconds(call) for _ in range(5))
        over = least[name] - least["kernel[grid]"]
        say(f"{name:22} {least[name]:6.1f} us a call, {over:6.1f} more than the bare launch")
        yield dict(way=name, us=least[name], over_launch=over)


def direct_launch(q, k, v):
    """A function that launches the forward kernel with its arguments ready."""
    from flashlab.kernels import fa2, launch

    with launch.capture() as calls:
        fa2.forward(q, k, v, scale=q.shape[-1] ** -0.5)
    ((kernel, args, options),) = calls
    grid = (-(-q.shape[2] // options["BLOCK_Q"]) * q.shape[0] * q.shape[1],)
    return lambda: kernel[grid](*args, **options)


def microseconds(call):
    """The mean over many calls of the time until the call returns."""
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
