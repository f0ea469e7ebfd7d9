"""The answer to a prediction: the value, the guess beside it, and what a common wrong guess was thinking."""

import traitlets

from flashlab.widgets._base import Widget


class Reveal(Widget):
    """Traits: `value` (text), `guess` (text, "" for none), `verdict` ("right", "close" or ""), `thinking`
    (one line or "").

    Offline (no kernel) the value is behind a button, with `mistakes`, a list of {"guess", "text"}, below it.
    Its plain text is repr(result), as if the cell had ended in the value itself.
    """

    text_area = "learn"
    twin_height = 130

    question = traitlets.Unicode().tag(sync=True)
    value = traitlets.Unicode().tag(sync=True)
    guess = traitlets.Unicode().tag(sync=True)
    verdict = traitlets.Enum(("", "right", "close"), "").tag(sync=True)
    thinking = traitlets.Unicode().tag(sync=True)
    mistakes = traitlets.List().tag(sync=True)
    offline = traitlets.Bool(False).tag(sync=True)

    def __init__(self, result, **traits):
        self.result = result
        traits.setdefault("value", result if isinstance(result, str) else repr(result))
        super().__init__(**traits)

    def summary(self):
        return self.question or self.strings["reveal"]["title"]

    def __repr__(self):
        return repr(self.result)

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {**data, "text/plain": repr(self.result)}, metadata
