"""The tricks on show: one as a table, all as a figure; claimed beside honest, on the same device."""

from dataclasses import dataclass

from flashlab.bench.tricks import detectors, lies
from flashlab.bench.tricks.device import Simulated
from flashlab.bench.tricks.honest import HONEST, Claim, WrongResult
from flashlab.text import t


def list():
    """The names of the tricks."""
    return [*lies.TRICKS]


@dataclass(frozen=True)
class Played:
    """A trick played: what it claims, what is honest on the same device, and how it was found.

    `factor`: how many times the claimed rate (or speed-up) is the honest one. `refused`: why the honest
    benchmark gives no number for this kernel, or None; `honest` is then that of the kernel it stands in for.
    """

    trick: str
    claimed: Claim
    honest: Claim
    device: object
    refused: str | None
    evidence: str | None

    @property
    def factor(self):
        """Claimed over honest: speed-ups where there are any, else TFLOP/s."""
        if self.claimed.speedup is not None:
            return self.claimed.speedup / self.honest.speedup
        return self.claimed.tflops / self.honest.tflops

    @property
    def name(self):
        """The trick's name in the chosen language."""
        return t(f"tricks.names.{self.trick}")

    def __str__(self):
        p = self.claimed.problem
        mask = t("tricks.causal" if p.causal else "tricks.full")
        where = dict(B=p.B, Hq=p.Hq, Nq=p.Nq, Nk=p.Nk, D=p.D, mask=mask, dtype=p.dtype)
        lines = [f"{self.name}", t(f"tricks.lie.{self.trick}"), ""]
        for word, claim in (("claimed", self.claimed), ("honest", self.honest)):
            lines.append(f"{_numbers(claim)}   {t(f'tricks.{word}')}")
        lines.append(f"{self.factor:10.3g} ×  {t('tricks.factor')}")
        lines.append(
            f"  {t('tricks.where', kernel=self.claimed.kernel, device=_device(self.device), **where)}"
        )
        peak = detectors.peak_tflops(self.device, p.dtype)
        if peak and self.claimed.tflops > peak:
            lines.append(f"  {t('tricks.above_peak', peak=peak)}")
        if self.refused:
            lines.append(f"  {t('tricks.wrong_result', error=self.refused)}")
        if self.evidence:
            lines.append(t("tricks.found_by", evidence=self.evidence))
        return "\n".join(lines)


def play(name, device=None, show=True):
    """Play a trick on `device` (default: simulated) and print claimed, honest, the factor and what finds it.

    Returns the `Played`. Raises ValueError for a name that is not in `list()`.
    """
    played = _play(lies.get(name), device or Simulated())
    if show:
        print(played)
    return played


def _play(trick, device, detect=True):
    claimed = _claim(trick.benchmark, trick, trick.kernel, device)
    refused = None
    try:
        honest = _claim(HONEST, trick, trick.kernel, device)
    except WrongResult as why:
        refused = str(why)
        honest = _claim(HONEST, trick, "sdpa-flash", device)
    found = detectors.detect(trick.benchmark, device, only=[trick.name]) if detect else []
    evidence = found[0].evidence if found else None
    return Played(trick.name, claimed, honest, device, refused, evidence)


def _claim(benchmark, trick, kernel, device):
    device = device.fresh()
    beside = (device.attention(trick.against),) if trick.against else ()
    return benchmark(device, device.attention(kernel), trick.problem, *beside)


def _numbers(claim):
    text = f"{claim.ms:10.4f} ms {claim.tflops:12,.1f} TFLOP/s"
    return text if claim.speedup is None else f"{text}   {t('tricks.speedup')} {claim.speedup:7,.3g}"


def _device(device):
    if isinstance(device, Simulated):
        return t("tricks.simulated")
    gpu = device.gpu()
    return t("tricks.measured", gpu=gpu.name if gpu else "CUDA")


def figure(device=None):
    """A `flashlab.figures.Still`: for each trick how many times the honest number it claims."""
    from flashlab.bench.tricks import picture

    device = device or Simulated()
    return picture.draw([_play(x, device, detect=False) for x in lies.TRICKS.values()], _device(device))
