"""Short prompts one at a time: see the answer, say whether you knew it."""

import traitlets

from flashlab.widgets._base import Widget


class Review(Widget):
    """Traits: `cards` (list of {"id", "ask", "answer", "returning"}), `marks` ({id: knew it?}, set by the
    learner).

    `last`: no stop follows in this lesson.
    """

    text_area = "learn"
    twin_height = 210

    stop = traitlets.Unicode().tag(sync=True)
    cards = traitlets.List().tag(sync=True)
    marks = traitlets.Dict().tag(sync=True)
    last = traitlets.Bool(False).tag(sync=True)

    def summary(self):
        return f"{self.strings['review']['title']} {self.stop}"

    def __repr__(self):
        return f"{self.summary()}: {len(self.cards)}"
