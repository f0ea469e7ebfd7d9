"""A few questions before a lesson and, with other numbers, after it: recorded the first time, compared the
second.
"""

import traitlets

from flashlab.widgets._base import Widget


class BeforeAfter(Widget):
    """Traits: `half` ("before" | "after"), `items` (list of {"id", "question", "choices"}), `given` ({id:
    {"guess", "choice"}}).

    `results`, filled in Python once `given` is there: per item {"question", "before", "after"}, each half
    {"guess", "right", "expected"}. Offline the expected answers stand in each item of the second half.
    """

    text_area = "learn"
    twin_height = 330

    half = traitlets.Enum(("before", "after"), "before").tag(sync=True)
    items = traitlets.List().tag(sync=True)
    given = traitlets.Dict().tag(sync=True)
    results = traitlets.List().tag(sync=True)
    offline = traitlets.Bool(False).tag(sync=True)

    def summary(self):
        return self.strings["test"][self.half]

    def __repr__(self):
        return "\n".join([self.summary(), *(f"{n}. {i['question']}" for n, i in enumerate(self.items, 1))])
