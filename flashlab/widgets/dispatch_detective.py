"""`DispatchDetective`: pick the fields of a call, guess the SDPA backend, see which one runs and why.

In a notebook each answer is PyTorch's own, asked through flashlab.dispatch; a page without Python carries the
answers to the calls that it offers.
"""

import itertools
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
    offline = traitlets.Dict().tag(sync=True)  # device -> `packed` answers
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
        "kernels": [list(pair) for pair in explanation.seen()],
        "rows": rows,
    }


def packed_grid():
    """(axes, device -> `packed` answers to all calls of the grid)."""
    from flashlab.dispatch import explain
    from flashlab.dispatch.grid import AXES, grid

    answers = {device: packed(shown(explain(call, device=device)) for call in grid()) for device in DEVICES}
    return [[name, list(choices)] for name, choices in AXES.items()], answers


def packed(answers):
    """Answers with everything that occurs in several of them once: {"index", "answers", "values", "rows"}.

    `index`: [times, answer], in the order of the answers; `answers`: a list of numbers for each, the places
    of its fields in `values`, field by field, then those of its rows in `rows`.
    """
    from flashlab.bench.compact import place

    values, rows, numbers, index = {}, [], [], []
    for answer in answers:
        plain = {name: value for name, value in answer.items() if name != "rows"}
        fields = [place(values.setdefault(name, []), value) for name, value in plain.items()]
        index.append(place(numbers, fields + [place(rows, row) for row in answer["rows"]]))
    runs = [[len(list(same)), number] for number, same in itertools.groupby(index)]
    return {"index": runs, "answers": numbers, "values": values, "rows": rows}
