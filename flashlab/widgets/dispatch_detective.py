"""`DispatchDetective`: pick the fields of a call, guess the SDPA backend, see which one runs and why.

In a notebook each answer is PyTorch's own, asked through flashlab.dispatch; a page without Python carries the
answers to the calls that it offers.
"""

import itertools
import json
import os

import traitlets

from flashlab.widgets._base import Widget

DEVICES = ("cpu", "cuda")


class DispatchDetective(Widget):
    """The detective as a picture: backends in the order of trying, each with its verdict and reasons.

    Open it with `DispatchDetective.of(Hq=8, mask="causal")` or `.of(Call(...), device="cuda")`; what is no
    call becomes a sentence. `call` and `device` follow the reader. `offline=True` (the default under
    FLASHLAB_STATIC=1) packs the answers to flashlab.dispatch.grid in, for pages without Python.
    """

    text_area = "detective"
    twin_height = 760

    call = traitlets.Dict().tag(sync=True)
    device = traitlets.Unicode("cpu").tag(sync=True)
    asked = traitlets.Dict().tag(sync=True)  # the browser's question: call, device, n
    answer = traitlets.Dict().tag(sync=True)  # `shown`, with the question's n
    axes = traitlets.List().tag(sync=True)  # [field, choices] of the offline answers
    offline = traitlets.Dict().tag(sync=True)  # device -> {"index": one number a call, "answers": [...]}
    error = traitlets.Unicode("").tag(sync=True)

    @classmethod
    def of(cls, call=None, *, device="cpu", offline=None, strings=None, **fields):
        """The widget for a Call or its fields; offline it opens on the grid's first call."""
        from flashlab.dispatch import Call, explain

        words = {"strings": strings} if strings else {}
        offline = os.environ.get("FLASHLAB_STATIC") == "1" if offline is None else offline
        try:
            call = Call(**fields) if call is None else call
            first = shown(explain(call, device=device))
        except (TypeError, ValueError) as problem:
            return cls(error=str(problem), **words)
        packed = dict(zip(("axes", "offline"), packed_grid(), strict=True)) if offline else {}
        if packed:
            from flashlab.dispatch.grid import BASE

            call = BASE
        return cls(call=call.fields(), device=device, answer={**first, "n": 0}, **packed, **words)

    @traitlets.observe("asked")
    def _ask(self, change):
        from flashlab.dispatch import Call, explain

        question = change["new"]
        try:
            call = Call(**question["call"])
            reply = shown(explain(call, device=question["device"]))
            self.call, self.device = call.fields(), question["device"]
        except (TypeError, ValueError) as problem:
            reply = {"error": str(problem)}
        self.answer = {**reply, "n": question["n"]}

    def summary(self):
        return self.error or self.strings.get("summary", "DispatchDetective")


def shown(explanation):
    """What the picture shows of an Explanation, in the chosen language: plain values only.

    On the CPU the two backends that it does not have are left out.
    """
    rows = [
        {
            "backend": backend,
            "can": explanation.verdict(backend).can,
            "reasons": reasons,
            "said": said,
        }
        for backend, _, reasons, said in explanation.rows()
        if explanation.device == "cuda" or backend in explanation.order
    ]
    return {
        "choice": explanation.choice,
        "candidates": list(explanation.candidates),
        "refused": explanation.refused,
        "headline": explanation.headline(),
        "basis": explanation.basis,
        "source": explanation.basis_line(),
        "notes": list(explanation.notes),
        "rows": rows,
    }


def packed_grid():
    """(axes, device -> {"index", "answers"}): every answer to the grid's calls, equal ones once."""
    from flashlab.dispatch import explain
    from flashlab.dispatch.grid import AXES, grid

    packed = {}
    for device in DEVICES:
        answers = {}
        index = [
            answers.setdefault(json.dumps(shown(explain(c, device=device))), len(answers)) for c in grid()
        ]
        runs = [[len(list(same)), number] for number, same in itertools.groupby(index)]
        packed[device] = {"index": runs, "answers": [json.loads(a) for a in answers]}
    return [[name, list(choices)] for name, choices in AXES.items()], packed
