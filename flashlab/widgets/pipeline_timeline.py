"""`PipelineTimeline`: who works and who waits on one SM, two steps of the Hopper kernels on one time axis.

Drawn from the simulator's log (`flashlab.pipeline`).
"""

import traitlets

from flashlab import pipeline
from flashlab.text import t
from flashlab.widgets._base import Widget


class PipelineTimeline(Widget):
    """Open it with `PipelineTimeline.of(step=4, above=2, D=128, causal=False)`; `above=0`: `step` alone.

    The traits follow what the reader chooses. `ask`: the reader guesses before the picture is shown (or
    skips): `guess_unit` and `guess_share` (percent; -1 before, 101 skipped). `logs` carries what can be
    chosen; `measured` the rates of kept measurements, if there are any. `error` is the sentence shown instead
    of the picture.
    """

    text_area = "pipeline"
    esm_first = ("pipeline_numbers.js", "pipeline_picture.js")
    twin_height = 900

    logs = traitlets.Dict().tag(sync=True)  # "128" or "128 causal" -> five packed logs
    measured = traitlets.List().tag(sync=True)
    made = traitlets.Dict().tag(sync=True)
    step = traitlets.Int(4).tag(sync=True)
    above = traitlets.Int(2).tag(sync=True)
    D = traitlets.Int(128).tag(sync=True)
    causal = traitlets.Bool(False).tag(sync=True)
    ask = traitlets.Bool(True).tag(sync=True)
    guess_unit = traitlets.Unicode("").tag(sync=True)
    guess_share = traitlets.Int(-1).tag(sync=True)
    error = traitlets.Unicode("").tag(sync=True)

    @classmethod
    def of(cls, step=4, above=2, *, D=128, causal=False, **traits):
        """The widget for two steps. A head dim other than 64 and 128 is simulated now, which needs Triton and
        some seconds. What cannot be shown (an unknown step, no Triton) becomes a sentence in the widget.
        """
        language = traits.get("strings", {}).get("lang")
        try:
            for name, given, known in (
                ("step", step, pipeline.STEPS),
                ("above", above, (0, *pipeline.STEPS)),
            ):
                if isinstance(given, bool) or given not in known:
                    raise ValueError(f"expected {name} to be one of {list(known)}, got {given!r}")
            kept = pipeline.kept()
            logs = {**kept["logs"], pipeline.key(D, causal): pipeline.logs(D, causal)}
            made = {name: kept[name] for name in ("triton", "command", "rows", "keys", "timed")}
            state = dict(logs=logs, made=made, measured=pipeline.measured())
            return cls(step=step, above=above, D=D, causal=bool(causal), **state, **traits)
        except ImportError as found:
            return cls(error=t("pipeline.no_triton", language=language, D=D, reason=found), **traits)
        except (TypeError, ValueError) as found:
            return cls(error=str(found), **traits)

    def summary(self):
        return self.error or self.strings.get("summary", "PipelineTimeline")
