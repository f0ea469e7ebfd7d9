"""The GPUs that the models know: what fits on a multiprocessor (SM), what memory and arithmetic can do.

A GPU of your own is one line: `dataclasses.replace(get("H200"), name="mine", sms=66)`, or a GPU(...) in full.
Every function that takes a GPU takes a name of `ALL` or a GPU.

Peaks are dense (no 2:4 sparsity) at the boost clock; float32 is not tensor core work. A chip reaches 60-75 %
of them in large matrix products. `exp_rate` is 16 exponentials per clock and SM (CUDA C++ Programming Guide,
throughput of native arithmetic instructions, compute capability 7.0 to 9.0; FlashAttention-4 says the same of
10.0). `l2_partitions`: the A100 whitepaper says that each of its two L2 partitions caches data for the SMs
connected to it; measured on an H200, too, where FA1's 51 MB of running output do not stay in an L2 of 60 MB.
"""

from dataclasses import dataclass, field

from flashlab.errors import unknown_name

KB, MB = 1024, 1024**2
GB, TB, TERA = 10**9, 10**12, 10**12
RESERVED_SHARED = 1024  # bytes of shared memory that CUDA keeps for each resident program (from Ampere on)


@dataclass(frozen=True)
class GPU:
    """One kind of GPU.

    `clock_ghz` boost clock; `shared_per_sm`, `shared_per_program`, `registers_per_sm`, `l2_bytes`,
    `hbm_bytes` in bytes; `hbm_bandwidth` in bytes/s; `peak`: dtype -> dense matrix FLOP/s; `exp_rate` in
    exponentials/s (None: 16 per clock and SM). `l2_partitions`: parts of L2 that each cache for the SMs
    beside them, so that what all SMs read is held once in each. `source`: where each number is from, `date`:
    of when it is.
    """

    name: str
    sms: int
    clock_ghz: float
    shared_per_sm: int
    shared_per_program: int
    l2_bytes: int
    hbm_bytes: int
    hbm_bandwidth: float
    peak: dict = field(hash=False)
    compute_capability: tuple
    source: str
    date: str
    max_threads_per_sm: int = 2048
    max_programs_per_sm: int = 32
    registers_per_sm: int = 256 * KB
    l2_partitions: int = 1
    exp_rate: float | None = None

    def __post_init__(self):
        if self.exp_rate is None:
            object.__setattr__(self, "exp_rate", 16 * self.sms * self.clock_ghz * 1e9)
        for name in ("sms", "clock_ghz", "shared_per_sm", "l2_bytes", "hbm_bytes", "hbm_bandwidth"):
            if not getattr(self, name) > 0:
                raise ValueError(f"expected {name} of {self.name} to be above 0, got {getattr(self, name)!r}")

    @property
    def l2_shared(self):
        """Bytes of L2 for data that all SMs read: one partition."""
        return self.l2_bytes // self.l2_partitions

    def peak_of(self, dtype):
        """Matrix FLOP/s for a dtype. Raises ValueError where the GPU has no such units."""
        if dtype not in self.peak:
            raise ValueError(f"{self.name} has no {dtype} peak here; it has: {', '.join(self.peak)}")
        return self.peak[dtype]

    def ridge(self, dtype="float16"):
        """FLOPs per byte of HBM above which the arithmetic, not the memory, is the limit."""
        return self.peak_of(dtype) / self.hbm_bandwidth

    def residents(self, warps, registers, shared):
        """How many programs fit on one SM, and what limits that: (programs, "registers" | "shared memory" |
        "threads" | "programs").

        A program has `warps` warps of 32 threads, `registers` 4-byte registers a thread (handed out in
        eights) and `shared` bytes of shared memory. 0 if not even one fits.
        """
        registers = -(-registers // 8) * 8
        reserved = RESERVED_SHARED if self.compute_capability >= (8, 0) else 0
        limits = {
            "registers": self.registers_per_sm // (registers * 4 * 32 * warps) if registers else 32,
            "shared memory": self.shared_per_sm // (shared + reserved) if shared + reserved else 32,
            "threads": self.max_threads_per_sm // (32 * warps),
            "programs": self.max_programs_per_sm,
        }
        if shared > self.shared_per_program:
            limits["shared memory"] = 0
        if registers > 256:
            limits["registers"] = 0
        binding = min(limits, key=limits.get)
        return limits[binding], binding


def get(gpu):
    """The GPU of that name; a GPU comes back as it is. Raises ValueError that lists the closest names."""
    if isinstance(gpu, GPU):
        return gpu
    if gpu in ALL:
        return ALL[gpu]
    same = [g for name, g in ALL.items() if name.lower() == str(gpu).lower()]
    if same:
        return same[0]
    raise unknown_name("GPU", gpu, ALL)


def _peaks(half, single, bf16=True):
    """16-bit and fp32 peaks, in TFLOP/s."""
    of_dtype = {"float16": half * TERA, "float32": single * TERA}
    return of_dtype | {"bfloat16": half * TERA} if bf16 else of_dtype


GUIDE = "shared memory and threads: CUDA C++ Programming Guide, compute capability "
_LIST = [
    GPU(
        name="T4", sms=40, clock_ghz=1.59, shared_per_sm=64 * KB, shared_per_program=64 * KB,
        max_threads_per_sm=1024, max_programs_per_sm=16, l2_bytes=4 * MB, hbm_bytes=16 * GB,
        hbm_bandwidth=320 * GB, peak=_peaks(65, 8.1, bf16=False), compute_capability=(7, 5), date="2019-03",
        source="NVIDIA T4 datasheet (peaks, memory; GDDR6, not HBM); NVIDIA Turing architecture "
        "whitepaper (SMs, clock, L2);"
        " " + GUIDE + "7.5",
    ),
    GPU(
        name="V100", sms=80, clock_ghz=1.53, shared_per_sm=96 * KB, shared_per_program=96 * KB,
        l2_bytes=6 * MB, hbm_bytes=32 * GB, hbm_bandwidth=900 * GB,
        peak=_peaks(125, 15.7, bf16=False), compute_capability=(7, 0), date="2018-03",
        source="NVIDIA V100 SXM2 datasheet (peaks, memory); NVIDIA Volta architecture whitepaper (SMs, "
        "clock, L2);"
        " " + GUIDE + "7.0",
    ),
    GPU(
        name="A100-40", sms=108, clock_ghz=1.41, shared_per_sm=164 * KB, shared_per_program=163 * KB,
        l2_bytes=40 * MB, l2_partitions=2, hbm_bytes=40 * GB, hbm_bandwidth=1555 * GB,
        peak=_peaks(312, 19.5), compute_capability=(8, 0), date="2020-05",
        source="NVIDIA A100 datasheet and Ampere architecture whitepaper (peaks, memory, SMs, clock, "
        "L2); shared memory: NVIDIA Ampere Tuning Guide, occupancy; threads: CUDA C++ "
        "Programming Guide 8.0",
    ),
    GPU(
        name="A100-80", sms=108, clock_ghz=1.41, shared_per_sm=164 * KB, shared_per_program=163 * KB,
        l2_bytes=40 * MB, l2_partitions=2, hbm_bytes=80 * GB, hbm_bandwidth=2039 * GB,
        peak=_peaks(312, 19.5), compute_capability=(8, 0), date="2021-06",
        source="NVIDIA A100 80GB SXM datasheet (peaks, memory); Ampere architecture whitepaper (SMs, "
        "clock, L2); shared memory: NVIDIA Ampere Tuning Guide, occupancy; threads: CUDA C++ "
        "Programming Guide 8.0",
    ),
    GPU(
        name="L4", sms=58, clock_ghz=2.04, shared_per_sm=100 * KB, shared_per_program=99 * KB,
        max_threads_per_sm=1536, max_programs_per_sm=24, l2_bytes=48 * MB, hbm_bytes=24 * GB,
        hbm_bandwidth=300 * GB, peak=_peaks(121, 30.3), compute_capability=(8, 9), date="2023-03",
        source="NVIDIA L4 datasheet (peaks, half of the sparse figure; memory: GDDR6, not HBM); NVIDIA "
        "Ada architecture whitepaper (SMs, clock, L2);"
        " " + GUIDE + "8.9",
    ),
    GPU(
        name="RTX 4090", sms=128, clock_ghz=2.52, shared_per_sm=100 * KB, shared_per_program=99 * KB,
        max_threads_per_sm=1536, max_programs_per_sm=24, l2_bytes=72 * MB, hbm_bytes=24 * GB,
        hbm_bandwidth=1008 * GB, peak=_peaks(165.2, 82.6), compute_capability=(8, 9), date="2022-10",
        source="NVIDIA Ada architecture whitepaper, appendix (SMs, clock, L2, memory: GDDR6X, not HBM; "
        "16-bit peak with fp32 accumulation, dense);"
        " " + GUIDE + "8.9",
    ),
    GPU(
        name="H100 SXM", sms=132, clock_ghz=1.83, shared_per_sm=228 * KB, shared_per_program=227 * KB,
        l2_bytes=50 * MB, l2_partitions=2, hbm_bytes=80 * GB, hbm_bandwidth=3350 * GB,
        peak=_peaks(989.4, 66.9), compute_capability=(9, 0), date="2023-03",
        source="NVIDIA H100 datasheet (peaks, half of the sparse figure; memory); Hopper architecture "
        "whitepaper (SMs, L2); clock: that of the 16-bit peak and of the FlashAttention-3 "
        "paper; shared memory: NVIDIA Hopper Tuning Guide, occupancy; threads: CUDA C++ "
        "Programming Guide 9.0",
    ),
    GPU(
        name="H100 PCIe", sms=114, clock_ghz=1.755, shared_per_sm=228 * KB, shared_per_program=227 * KB,
        l2_bytes=50 * MB, l2_partitions=2, hbm_bytes=80 * GB, hbm_bandwidth=2000 * GB,
        peak=_peaks(756, 51.2), compute_capability=(9, 0), date="2023-03",
        source="NVIDIA H100 datasheet (peaks, half of the sparse figure; memory); Hopper architecture "
        "whitepaper (SMs, clock, L2); shared memory: NVIDIA Hopper Tuning Guide, occupancy; "
        "threads: CUDA C++ Programming Guide 9.0",
    ),
    GPU(
        name="H200", sms=132, clock_ghz=1.83, shared_per_sm=228 * KB, shared_per_program=227 * KB,
        l2_bytes=60 * MB, l2_partitions=2, hbm_bytes=141 * GB, hbm_bandwidth=4800 * GB,
        peak=_peaks(989.5, 66.9), compute_capability=(9, 0), date="2026-11",
        source="NVIDIA H200 datasheet (peaks, half of the sparse figure; memory; November 2023); SMs, "
        "L2, shared memory: read from the driver of the machine on which this course's "
        "measurements were made (November 2026; a copy reaches 4.24 TB/s there, a matrix "
        "product 715 TFLOP/s); clock: that of the 16-bit peak; threads: CUDA C++ Programming "
        "Guide 9.0",
    ),
    GPU(
        name="B200", sms=148, clock_ghz=1.85, shared_per_sm=228 * KB, shared_per_program=227 * KB,
        l2_bytes=126 * MB, l2_partitions=2, hbm_bytes=180 * GB, hbm_bandwidth=8000 * GB,
        peak=_peaks(2250, 75), compute_capability=(10, 0), date="2024-11",
        source="NVIDIA DGX B200 and HGX B200 datasheets, one of eight GPUs (peaks, half of the sparse "
        "figure; memory); SMs, clock, L2: as the driver reports them, published by users, not "
        "checked here;"
        " " + GUIDE + "10.0",
    ),
]  # fmt: skip
ALL = {gpu.name: gpu for gpu in _LIST}
