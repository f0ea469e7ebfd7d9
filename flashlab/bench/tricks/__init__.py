"""How benchmarks lie, and how to find out: fourteen tricks, played and detected without a GPU.

`list()` names the tricks, `play("no-synchronize")` plays one and shows the claim beside the honest number,
`figure()` shows them all, `detect(benchmark)` experiments on a benchmark until it gives itself away,
`mystery(seed)` is one to find out about and `guess(mystery, ...)` marks what you think.
"""

from flashlab.bench.tricks.detectors import Finding, detect
from flashlab.bench.tricks.device import Simulated
from flashlab.bench.tricks.exercise import Mystery, guess, mystery
from flashlab.bench.tricks.honest import HONEST, Benchmark, Claim, WrongResult
from flashlab.bench.tricks.lies import DECODE, LONG, together
from flashlab.bench.tricks.show import Played, figure, list, play

__all__ = [
    "DECODE",
    "HONEST",
    "LONG",
    "Benchmark",
    "Claim",
    "Finding",
    "Mystery",
    "Played",
    "Simulated",
    "WrongResult",
    "detect",
    "figure",
    "guess",
    "list",
    "mystery",
    "play",
    "together",
]
