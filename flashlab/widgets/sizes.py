"""What the widgets share that let the reader choose sizes: a Problem and the GPUs as plain numbers, and a
sentence in place of an exception.
"""

from dataclasses import asdict

import traitlets

from flashlab import gpus
from flashlab.problem import Problem
from flashlab.widgets._base import Widget

SIZES = ("B", "Hq", "Hkv", "Nq", "Nk", "D", "causal", "dtype", "block_q", "block_k")


def sizes(problem):
    """The sizes of a Problem as a dict that JSON can hold; `square` says whether Nq and Nk move together."""
    if not isinstance(problem, Problem):
        raise TypeError(f"expected a flashlab.Problem, got {type(problem).__name__}")
    if problem.Nq == 0 or problem.Nk == 0:
        raise ValueError(f"expected at least one query and one key, got Nq = {problem.Nq}, Nk = {problem.Nk}")
    found = {name: getattr(problem, name) for name in SIZES}
    return {**found, "square": problem.Nq == problem.Nk}


def plain(gpu):
    """A GPU as a dict that JSON can hold."""
    return {
        k: v if isinstance(v, dict | int | float | str | None) else str(v) for k, v in asdict(gpu).items()
    }


class SizesWidget(Widget):
    """Base of the widgets that compute in the browser: `problem` and `gpu` follow what the reader chose.

    `of(problem, gpu=...)` never raises for input that does not fit: the widget shows the sentence.
    """

    css_first = ("panel.css",)

    problem = traitlets.Dict().tag(sync=True)  # `sizes`
    gpu = traitlets.Unicode().tag(sync=True)
    gpus = traitlets.List().tag(sync=True)  # [`plain`]
    error = traitlets.Unicode().tag(sync=True)

    @classmethod
    def of(cls, problem, gpu="H200", **options):
        """The widget for a Problem on a GPU (a name of `flashlab.gpus.ALL`, or a GPU of your own)."""
        try:
            card = gpus.get(gpu)
            cards = {**gpus.ALL, card.name: card}
            return cls(
                problem=sizes(problem),
                gpu=card.name,
                gpus=[plain(c) for c in cards.values()],
                **cls.checked(options),
            )
        except (ValueError, TypeError) as error:
            return cls(error=str(error))

    @classmethod
    def checked(cls, options):
        """`options` of `of` as traits; raises ValueError or TypeError for what does not fit."""
        unknown = set(options) - set(cls.class_trait_names(sync=True))
        if unknown:
            raise TypeError(f"{cls.__name__}.of takes no {', '.join(sorted(unknown))}")
        return options

    def summary(self):
        return self.error or self.strings.get("summary", type(self).__name__)
