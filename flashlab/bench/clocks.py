"""The clock of the SMs right now, from NVIDIA's management library (NVML), which comes with the driver.

Asking takes microseconds; nvidia-smi, which asks the same library, takes tenths of a second.
"""

import ctypes
import functools

SM = 1  # NVML_CLOCK_SM


def sm_mhz():
    """MHz of the current CUDA device's SMs, or None where nothing can be asked."""
    try:
        nvml, handle = _nvml()
        clock = ctypes.c_uint()
        return clock.value if nvml.nvmlDeviceGetClockInfo(handle, SM, ctypes.byref(clock)) == 0 else None
    except (OSError, AttributeError, RuntimeError, AssertionError):
        return None


@functools.cache
def _nvml():
    """(the library, the handle of the current CUDA device); raises OSError or RuntimeError."""
    import torch

    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}".encode()
    handle = ctypes.c_void_p()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)):
        raise RuntimeError("NVML does not know this device")
    return nvml, handle
