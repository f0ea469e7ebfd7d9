"""The work that counts, and the two times below which nothing can get: that of the bytes at the memory's
bandwidth, and that of the matrix products at the GPU's peak.
"""

from flashlab import gpus, memory
from flashlab.problem import Problem


def flops(case, direction):
    """FLOPs that count, as the papers count them: 4 B H N^2 D forward, halved for causal, times 2.5 backward
    (five products for two, with the one that is computed again).
    """
    forward = 4 * case["B"] * case["H"] * case["N"] ** 2 * case["D"] / (2 if case["causal"] else 1)
    return forward * (2.5 if direction == "backward" else 1)


def floor_bytes(case, direction):
    """Bytes that cross once, whoever computes: forward q, k, v and o with its lse; backward q, k, v, o, lse
    and do on the way in, dq, dk and dv on the way out.

    Forward these are FA2's loads and stores with a cache that holds everything. Its backward pass is several
    kernels that hand sums to each other, so there the tensors are counted.
    """
    problem = Problem(case["B"], case["H"], Nq=case["N"], D=case["D"], dtype=case["dtype"])
    if direction == "forward":
        return memory.traffic(problem, "fa2", level="hbm", l2_bytes=2**62).bytes()
    kept = memory.kept(problem, "fa2")  # q, k, v, o, lse
    return sum(kept.values()) + 4 * kept["q"]  # do, dq, dk, dv


def floors(case, direction, ms, gpu):
    """`against` for a forward or backward pass that took `ms`.

    Standard attention keeps P and needs four products backward, not five: it may get 25 % beyond the floor.
    """
    return against(floor_bytes(case, direction), flops(case, direction), case["dtype"], ms, gpu)


def against(moved, work, dtype, ms, gpu):
    """Bytes and FLOPs, the time of each alone in milliseconds, and how many percent of the longer one a time
    of `ms` reaches; without the times where the GPU is not known (None) or has no peak for the dtype.
    """
    fields = dict(floor_bytes=moved, floor_flops=work)
    if gpu is None or dtype not in gpu.peak:
        return fields
    by_bytes, by_flops = 1e3 * moved / gpu.hbm_bandwidth, 1e3 * work / gpu.peak_of(dtype)
    fields |= dict(floor_bytes_ms=by_bytes, floor_flops_ms=by_flops)
    return fields | dict(percent_of_floor=100 * max(by_bytes, by_flops) / ms)


OTHERS = {"Laptop", "NVL", "D", "Max", "Ti", "SUPER"}  # in a name, these make it another GPU


def known(name):
    """The GPU of `flashlab.gpus` that a driver's name ("NVIDIA H200", "Tesla T4") speaks of, or None.

    Every word of the table's name must be in the driver's, which calls an H100 SXM "H100 80GB HBM3".
    """
    words = set(name.replace("-", " ").replace("GB", "").split())
    words |= {"SXM"} if "HBM3" in words else set()
    found = [g for g in gpus.ALL.values() if set(g.name.replace("-", " ").split()) <= words]
    return found[0] if found and not words & OTHERS else None
