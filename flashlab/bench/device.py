"""The GPU that this process runs on, for the models: what the driver says of it, and the table's numbers
where `flashlab.gpus` knows it.
"""

import dataclasses
import math

from flashlab import gpus
from flashlab.bench.floors import known


def this_gpu():
    """(GPU, note): see `described`."""
    import torch

    return described(torch.cuda.get_device_properties(torch.cuda.current_device()))


def described(props):
    """(GPU, note) of a CUDA device's properties. `note`: None, or a sentence where it is not in the table.

    What the driver says goes before the table: names, SMs, L2, what fits on an SM. The driver says nothing of
    peaks and bandwidth: a GPU that is not in the table has no peaks, and a bandwidth without a bound.
    """
    table = known(props.name)
    base = table or dataclasses.replace(
        gpus.get("H200"), peak={}, hbm_bandwidth=math.inf, l2_partitions=1, max_programs_per_sm=32
    )
    asked = dict(
        shared_per_sm="shared_memory_per_multiprocessor", shared_per_program="shared_memory_per_block_optin",
        max_threads_per_sm="max_threads_per_multi_processor", hbm_bytes="total_memory",
    )  # fmt: skip
    said = {field: getattr(props, name) for field, name in asked.items() if getattr(props, name, None)}
    if getattr(props, "regs_per_multiprocessor", None):
        said["registers_per_sm"] = 4 * props.regs_per_multiprocessor
    if not table and getattr(props, "clock_rate", None):
        said["clock_ghz"] = props.clock_rate / 1e6
    gpu = dataclasses.replace(
        base, name=props.name, sms=props.multi_processor_count, l2_bytes=props.L2_cache_size, exp_rate=None,
        compute_capability=(props.major, props.minor), **said,
    )  # fmt: skip
    return gpu, None if table else (
        f"{props.name} is not in flashlab's table of GPUs: the model takes the driver's numbers and one L2."
    )
