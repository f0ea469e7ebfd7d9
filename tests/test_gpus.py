"""The table of GPUs: numbers that hang together, and how many programs fit on an SM."""

import dataclasses

import pytest

from flashlab import gpus
from flashlab.kernels import gate

KB = 1024


@pytest.mark.parametrize(
    ("name", "ridge"), [("A100-40", 201), ("A100-80", 153), ("H100 SXM", 295), ("H200", 206), ("B200", 281)]
)
def test_ridge_points_are_those_of_the_course(name, ridge):
    assert round(gpus.get(name).ridge()) == ridge


@pytest.mark.parametrize("gpu", gpus.ALL.values(), ids=str)
def test_every_number_is_plausible_and_has_a_source_and_a_date(gpu):
    assert 40 <= gpu.sms <= 160 and 1 < gpu.clock_ghz < 3
    assert gpu.shared_per_program <= gpu.shared_per_sm < gpu.registers_per_sm == 256 * KB
    assert gpu.l2_bytes < gpu.hbm_bytes / 100 and 16e9 <= gpu.hbm_bytes <= 200e9
    assert 3e11 <= gpu.hbm_bandwidth <= 8e12
    assert 100 < gpu.ridge() < 500 and gpu.peak["float32"] < gpu.peak["float16"]
    assert gpu.max_threads_per_sm in (1024, 1536, 2048)
    year, month = map(int, gpu.date.split("-"))
    assert 2017 <= year <= 2026 and 1 <= month <= 12
    assert len(gpu.source) > 60 and "NVIDIA" in gpu.source


@pytest.mark.parametrize("gpu", gpus.ALL.values(), ids=str)
def test_fp32_peaks_are_units_times_clock(gpu):
    # 64 fp32 units an SM up to compute capability 8.0, 128 from 8.6 on, two FLOPs each and clock
    units = 64 if gpu.compute_capability <= (8, 0) else 128
    assert gpu.peak["float32"] == pytest.approx(2 * units * gpu.sms * gpu.clock_ghz * 1e9, rel=0.1)


def test_exponentials_are_256_times_scarcer_than_matrix_flops_on_an_h100():
    gpu = gpus.get("H100 SXM")
    assert gpu.exp_rate == pytest.approx(3.9e12, rel=0.01)
    assert gpu.peak["float16"] / gpu.exp_rate == pytest.approx(256, rel=0.01)


def test_only_gpus_from_ampere_on_know_bfloat16():
    assert all(("bfloat16" in gpu.peak) == (gpu.compute_capability >= (8, 0)) for gpu in gpus.ALL.values())
    with pytest.raises(ValueError, match="V100 has no bfloat16 peak here; it has: float16, float32"):
        gpus.get("V100").ridge("bfloat16")


def test_shared_memory_is_what_the_compile_gate_allows():
    for gpu in gpus.ALL.values():
        major, minor = gpu.compute_capability
        arch = {(8, 0): 80, (8, 9): 89, (9, 0): 90, (10, 0): 100}.get((major, minor))
        if arch:
            assert gpu.shared_per_program == gate.SHARED_MEMORY[arch]


def test_names_are_found_in_any_case_and_the_closest_are_listed():
    assert gpus.get("h200") is gpus.get("H200") is gpus.get(gpus.get("H200"))
    with pytest.raises(ValueError, match="unknown GPU 'H300'. Did you mean .*H200"):
        gpus.get("H300")


def test_a_gpu_of_ones_own_is_one_line():
    mine = dataclasses.replace(gpus.get("H200"), name="mine", sms=66)
    assert gpus.get(mine).sms == 66 and hash(mine)
    with pytest.raises(ValueError, match="expected sms of broken to be above 0, got 0"):
        dataclasses.replace(mine, name="broken", sms=0)


@pytest.mark.parametrize(
    ("use", "fits"),
    [
        (dict(warps=4, registers=255, shared=0), (2, "registers")),  # 256 * 128 * 4 bytes = 128 KB each
        (dict(warps=8, registers=255, shared=0), (1, "registers")),
        (dict(warps=4, registers=168, shared=70 * KB), (3, "registers")),
        (dict(warps=4, registers=100, shared=75 * KB), (3, "shared memory")),
        # CUDA keeps 1 KB for each program: 3 * 77 > 228
        (dict(warps=4, registers=100, shared=76 * KB), (2, "shared memory")),
        (dict(warps=16, registers=24, shared=0), (4, "threads")),
        (dict(warps=1, registers=16, shared=0), (32, "programs")),
        (dict(warps=4, registers=64, shared=228 * KB), (0, "shared memory")),
        (dict(warps=8, registers=300, shared=0), (0, "registers")),
    ],
)
def test_what_fits_on_an_sm_of_an_h100_and_what_limits_it(use, fits):
    assert gpus.get("H100 SXM").residents(**use) == fits
