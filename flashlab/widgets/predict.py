"""A question asked before its result: a box or buttons; Enter locks the guess."""

import traitlets

from flashlab.widgets._base import Widget


class Predict(Widget):
    """Traits: `question`, `unit`, `choices` (buttons instead of a box), `locked` ({} or {"guess": text,
    "choice": position}).

    `choice` is -1 for a typed guess. `saved` is False when the guess could not be written to the progress
    file.
    """

    text_area = "learn"
    twin_height = 150

    question = traitlets.Unicode().tag(sync=True)
    unit = traitlets.Unicode().tag(sync=True)
    choices = traitlets.List(traitlets.Unicode()).tag(sync=True)
    locked = traitlets.Dict().tag(sync=True)
    saved = traitlets.Bool(True).tag(sync=True)
    offline = traitlets.Bool(False).tag(sync=True)

    def summary(self):
        return self.question

    def __repr__(self):
        return f"{self.strings['predict']['title']}: {self.question}"
