"""Say an answer aloud against a timer, then tick what you said, with one way to say it beside the points."""

import traitlets

from flashlab.widgets._base import Widget


class Say(Widget):
    """Traits: `ask`, `seconds`, `points` (key points), `answer` (one spoken answer), `ticked` (positions of
    points, or None before).
    """

    text_area = "learn"
    twin_height = 380

    ask = traitlets.Unicode().tag(sync=True)
    seconds = traitlets.Int(60).tag(sync=True)
    points = traitlets.List(traitlets.Unicode()).tag(sync=True)
    answer = traitlets.Unicode().tag(sync=True)
    ticked = traitlets.List(traitlets.Int(), default_value=None, allow_none=True).tag(sync=True)

    def summary(self):
        return self.ask

    def __repr__(self):
        return f"{self.strings['say']['title']}: {self.ask}"
