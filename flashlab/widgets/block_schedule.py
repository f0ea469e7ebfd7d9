"""`BlockSchedule`: the multiprocessors of a GPU as rows, time to the right, each program where it runs.

The placement is `flashlab.schedule`'s; schedule_numbers.js computes it again in the browser.
"""

import traitlets

from flashlab import gpus
from flashlab.errors import unknown_name
from flashlab.schedule import ORDERS, work_items
from flashlab.text import t
from flashlab.widgets._base import Widget

LAUNCHES = ("fa1", "fa2", "decode", "persistent")


class BlockSchedule(Widget):
    """Which SM runs which block when; the traits follow what the reader chooses.

    Open it with `BlockSchedule.of(problem, gpu="H200")`. `ask`: the reader guesses the utilisation before the
    picture is shown (or skips). `guess` is the reader's number in percent, -1 before. `error` is the sentence
    shown instead of the picture.
    """

    text_area = "schedule"
    esm_first = ("schedule_numbers.js", "schedule_picture.js")
    twin_height = 820

    gpus = traitlets.List().tag(sync=True)  # what `simulate` in JavaScript takes, one dict for each GPU
    problem = traitlets.Dict().tag(sync=True)
    lengths = traitlets.List(traitlets.Int()).tag(sync=True)
    gpu = traitlets.Unicode("H200").tag(sync=True)
    algorithm = traitlets.Enum(LAUNCHES, "fa2").tag(sync=True)
    order = traitlets.Enum(ORDERS, "natural").tag(sync=True)
    splits = traitlets.Int(0).tag(sync=True)  # 0: as many as the kernel chooses
    programs_per_sm = traitlets.Int(1).tag(sync=True)
    ask = traitlets.Bool(True).tag(sync=True)
    guess = traitlets.Int(-1).tag(sync=True)
    error = traitlets.Unicode("").tag(sync=True)

    @classmethod
    def of(
        cls, problem, gpu="H200", algorithm=None, *, order="natural", splits=0, programs_per_sm=1, **traits
    ):
        """The widget for a Problem on a GPU (a name or a `gpus.GPU`).

        algorithm: "fa1", "fa2", "decode" or "persistent"; default "decode" for up to 16 queries of a longer
        context, else "fa2". What cannot be shown (an unknown GPU, N = 0) becomes a sentence in the widget.
        """
        try:
            state = _state(problem, gpu, algorithm, order, splits, programs_per_sm)
            return cls(**state, **traits)
        except (TypeError, ValueError, AttributeError) as found:
            return cls(error=str(found), **traits)

    def summary(self):
        return self.error or t("schedule.summary", language=self.strings.get("lang"), gpu=self.gpu)


def _state(p, gpu, algorithm, order, splits, programs_per_sm):
    chosen = gpus.get(gpu)
    algorithm = algorithm or ("decode" if p.Nq <= 16 and p.Nq < p.Nk else "fa2")
    if algorithm not in LAUNCHES:
        raise unknown_name("launch", algorithm, LAUNCHES)
    if order not in ORDERS:
        raise unknown_name("order", order, ORDERS)
    for name, given, least in (("splits", splits or 0, 0), ("programs_per_sm", programs_per_sm, 1)):
        if isinstance(given, bool) or not isinstance(given, int) or given < least:
            raise ValueError(f"expected {name} to be a whole number >= {least}, got {given!r}")
    if min(p.Nq, p.Nk, p.B, p.Hq) < 1:
        raise ValueError(t("schedule.bad_problem", nq=p.Nq, nk=p.Nk, b=p.B, h=p.Hq))
    work_items(p, "fa2" if algorithm == "persistent" else algorithm, chosen, order, splits)  # may be too many
    sizes = ("B", "Hq", "Hkv", "Nq", "Nk", "D", "block_q", "block_k")
    return dict(
        gpus=[facts(g, p.dtype) for g in {**gpus.ALL, chosen.name: chosen}.values()],
        problem={**{name: int(getattr(p, name)) for name in sizes}, "causal": p.causal},
        lengths=sorted({*(2**i for i in range(7, 18)), p.Nk}),
        gpu=chosen.name,
        algorithm=algorithm,
        order=order,
        splits=splits or 0,
        programs_per_sm=programs_per_sm,
    )


def facts(gpu, dtype):
    """What the JavaScript needs to know of a GPU; its peak is None where it has none for the dtype."""
    return {"name": gpu.name, "sms": gpu.sms, "peak": gpu.peak.get(dtype)}
