"""Sentences for a résumé, made only from measurements that are there: each function writes one, or raises
NotMeasured, which says what is missing and the command that measures it.

A sentence says what was done (measured, checked, solved), on which machine, at which size, against what, when
and with which flashlab; its `ids` are the records behind it. The size is never chosen for its ratio: always
the largest N that was measured (`pairs.compare` sorts), or the N that the profile is about.
"""

from dataclasses import dataclass

from flashlab.bench.report.pairs import compare
from flashlab.bench.report.records import BYTES, machine, version
from flashlab.bench.report.wording import case, with_article
from flashlab.text import lang, t

KERNELS = "flashlab bench kernels --peers fa2 sdpa-flash standard --out kernels.json"
MEMORY = "flashlab bench memory --out memory.json"
CPU = "flashlab bench cpu --out cpu.json"
TRAFFIC = "flashlab report --out report.html"
SHORT = 512  # the length that BERT was trained with


@dataclass(frozen=True)
class Sentence:
    """`text` to be used, the `ids` of its records, and the self-test questions that it invites (`ask`)."""

    text: str
    ids: tuple[str, ...]
    ask: tuple[str, ...] = ()


class NotMeasured(LookupError):
    """A sentence that is not written: the message says what is missing; `command` (or "") measures it."""

    def __init__(self, reason, command=""):
        super().__init__(reason)
        self.command = command


def speed_and_memory(measurements, **wanted):
    """ "Measured ... on an RTX 4090 (fp16, N = 8192): 3.4x faster and 18x less attention memory than ...".

    The memory is named only where the same rows hold it. `wanted`: see `pairs.compare`.
    """
    found = compare(measurements, "ms", **wanted)
    if not found:
        gpu = wanted.get("gpu")
        raise NotMeasured(
            t("report.missing.speed_gpu" if gpu else "report.missing.speed"), KERNELS if gpu else CPU
        )
    speed = found[-1]
    parts = [speed]
    for metric in BYTES:
        parts += [c for c in compare(measurements, metric, **wanted) if c.ids == speed.ids][:1]
    return Sentence(_measured(parts), speed.ids, ("G01", "G02", "E08"))


def training(measurements):
    """Forward and backward together, on a GPU; causal, as language models are trained, if that is there."""
    both = ("forward", "backward")
    found = compare(measurements, "ms", both, gpu=True, causal=True)
    found = found or compare(measurements, "ms", both, gpu=True)
    if not found:
        raise NotMeasured(t("report.missing.training"), KERNELS)
    return Sentence(_measured(found[-1:], "both"), found[-1].ids, ("G01", "G03", "A10"))


def training_memory(measurements):
    """What forward and backward need beyond inputs and results, or what is kept in between."""
    for metric, directions in (
        ("extra_bytes", "both"),
        ("kept_bytes", "forward"),
        ("kept_bytes", "backward"),
    ):
        found = compare(measurements, metric, (directions,))
        if found:
            way = "" if metric == "kept_bytes" else None
            return Sentence(_measured(found[-1:], way), found[-1].ids, ("D01", "D03", "G04"))
    raise NotMeasured(t("report.missing.memory"), CPU)


def whole_step(measurements):
    """Never written: a faster operator is not a faster training step, and flashlab measures no such step."""
    raise NotMeasured(t("report.missing.step"))


def short_and_long(measurements):
    """How the gain of an encoder (no causal mask) grows from N = 512 to the largest N that was measured."""
    every = compare(measurements, "ms", causal=False)
    for long in reversed(every):
        same = [c for c in every if _but_length(c) == _but_length(long) and _length(c) == SHORT]
        if same and _length(long) > SHORT:
            break
    else:
        raise NotMeasured(t("report.missing.lengths", n=SHORT), CPU)
    short, first = same[-1], long.flash[0]
    text = t(
        "report.sentence.lengths",
        **_where(first, long, several=[c.flash[0].row for c in (short, long)]),
        short=SHORT,
        long=f"{_length(long)}",
        at_short=_finding(short),
        at_long=_finding(long),
    )
    return Sentence(text, short.ids + long.ids, ("G03", "A10"))


def exercise(passed):
    """The learner's own code: an exercise whose check passed; `passed` as `gather.exercises` gives them."""
    if not passed:
        raise NotMeasured(t("report.missing.exercise"), 'fl.check("online_softmax")(online_attention)')
    last = passed[-1]
    what = t(f"report.exercise.{last['name']}")
    text = t("report.sentence.exercise", what=what, stages=last["stages"], date=last["date"])
    return Sentence(text, (last["id"],), ("C05", "C02"))


def traffic(check):
    """Bytes counted in the interpreter against the model; `check` as `gather.traffic_check` gives it."""
    if check is None or check.problem:
        reason = check.problem if check else t("report.missing.traffic_none")
        raise NotMeasured(t("report.missing.traffic", reason=reason), TRAFFIC)
    if not check.equal:
        raise NotMeasured(t("report.missing.traffic", reason=t("report.missing.traffic_differs")), TRAFFIC)
    text = t(
        "report.sentence.traffic",
        loaded=f"{check.bytes('load'):,}",
        stored=f"{check.bytes('store'):,}",
        sizes=check.sizes,
        date=check.provenance["date"][:10],
        version=version(check.provenance),
    )
    return Sentence(text, (check.id,), ("B05", "C01"))


def profiles(measurements, passed, check):
    """{profile: [Sentence or NotMeasured]} for people who trained LLMs, did classic NLP, or have no project
    yet."""
    plan = {
        "llm": [
            (_gpu_speed, measurements),
            (training, measurements),
            (training_memory, measurements),
            (whole_step, measurements),
        ],
        "nlp": [(short_and_long, measurements), (_any_speed, measurements)],
        "graduate": [(exercise, passed), (traffic, check), (_any_speed, measurements)],
    }
    return {name: [_try(write, facts) for write, facts in parts] for name, parts in plan.items()}


def _gpu_speed(measurements):
    return speed_and_memory(measurements, gpu=True)


def _any_speed(measurements):
    return speed_and_memory(measurements)


def _try(write, facts):
    try:
        return write(facts)
    except NotMeasured as missing:
        return missing


def _measured(comparisons, way=None):
    """The sentence for one or more comparisons of the same rows."""
    first = comparisons[0].flash[0]
    findings = t("report.sentence.and").join(_finding(c) for c in comparisons)
    return t("report.sentence.measured", findings=findings, **_where(first, comparisons[0], way))


def _finding(comparison):
    gpu = bool(comparison.flash[0].provenance.get("gpu"))
    memory = t("report.sentence.memory_gpu" if gpu else "report.sentence.memory_cpu")
    kind = "time" if comparison.metric == "ms" else "kept" if comparison.metric == "kept_bytes" else "memory"
    return t(f"report.sentence.{kind}_{comparison.verdict}", ratio=comparison.printed, memory=memory)


def _where(measurement, comparison, way=None, several=None):
    row, origin = measurement.row, measurement.provenance
    return {
        "peer": t(f"report.peer.{row['peer']}"),
        "baseline": t(f"report.peer.{comparison.standard[0].row['peer']}"),
        "machine": with_article(machine(origin)) if lang() == "en" else machine(origin),
        "case": case(row, way, several),
        "date": origin["date"][:10],
        "version": version(origin),
    }


def _length(comparison):
    return comparison.flash[0].row["N"]


def _but_length(comparison):
    first, standard = comparison.flash[0], comparison.standard[0]
    same = (first.row[x] if x in first.row else None for x in ("dtype", "H", "D", "direction", "peer"))
    return first.run, *same, standard.row["peer"]
