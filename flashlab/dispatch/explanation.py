"""What the detective answers: a verdict for each backend, and on what it rests."""

import html
from dataclasses import asdict, dataclass

from flashlab.dispatch.call import Call
from flashlab.dispatch.words import translate
from flashlab.text import t

BACKENDS = (
    "cudnn",
    "flash",
    "efficient",
    "math",
)  # as torch.nn.attention.SDPBackend names them, less _ATTENTION
BASES = ("asked", "recorded", "rules")


@dataclass(frozen=True)
class Verdict:
    """Could `backend` take the call? `can`: True, False, or None where it depends on the version.

    `reasons`: PyTorch's own words, where it was asked. `keys`: the same as keys of text/*/dispatch.toml.
    `check`: the function in PyTorch's source that says no (rules only).
    """

    backend: str
    can: bool | None
    reasons: tuple = ()
    keys: tuple = ()
    check: str = ""

    def said(self):
        """Our sentences for the reasons, in the chosen language."""
        return [translate(key) for key in self.keys]


@dataclass(frozen=True)
class Explanation:
    """`choice`: "cudnn", "flash", "efficient", "math"; None where it depends on the version, then
    `candidates` are what is left. `order`: the order in which backends are tried. `refused`: the error that
    the call raises all the same. `basis`: "asked" (PyTorch answered here), "recorded" or "rules" (read in its
    source, not run); `source` says where and when, `machine` for a record the GPU and the version of torch.
    `kernels`: what a record saw run, as ("forward", names), ("backward", names), ... `notes`: sentences about
    the result.
    """

    device: str
    basis: str
    choice: str | None
    order: tuple
    verdicts: tuple
    call: Call | None = None
    title: str = ""
    candidates: tuple = ()
    refused: str = ""
    notes: tuple = ()
    source: str = ""
    machine: str = ""
    kernels: tuple = ()

    def verdict(self, backend):
        """The Verdict of one backend."""
        return next(v for v in self.verdicts if v.backend == backend)

    def headline(self):
        """The finding in one sentence."""
        if self.refused:
            key = "raised" if self.basis == "recorded" else "refused"
            return t(f"dispatch.head.{key}", choice=self.choice, machine=self.machine)
        if self.choice:
            key = {"rules": "read", "recorded": "ran"}.get(self.basis, "runs")
            return t(f"dispatch.head.{key}", choice=self.choice, device=self.device, machine=self.machine)
        return t("dispatch.head.depends", candidates=t("dispatch.head.or").join(self.candidates))

    def basis_line(self):
        """One sentence on what the answer rests on."""
        return t(f"dispatch.basis.{self.basis}", source=self.source)

    def seen(self):
        """The kernels as [(part, names)], the part in the chosen language."""
        return [(t(f"dispatch.kernels.{part}"), list(names)) for part, names in self.kernels]

    def rows(self):
        """A row for each backend in the order of trying: (backend, verdict, reasons, our sentences)."""
        tried = [b for b in self.order if b in BACKENDS]
        shown = sorted(self.verdicts, key=lambda v: tried.index(v.backend) if v.backend in tried else 9)
        return [
            (v.backend, self._state(v), list(v.reasons) or [v.check] * bool(v.check), v.said()) for v in shown
        ]

    def _state(self, verdict):
        if self.choice == verdict.backend:
            runs = {"rules": "would", "recorded": "ran"}.get(self.basis, "chosen")
            return t(f"dispatch.state.{'raises' if self.refused else runs}")
        if verdict.can is None:
            return t("dispatch.state.depends")
        return t("dispatch.state.could" if verdict.can else "dispatch.state.cannot")

    def __repr__(self):
        lines = [str(self.call or self.title), self.headline()]
        for backend, state, reasons, said in self.rows():
            lines.append(f"  {backend:10} {state}")
            lines += [f"  {'':10}   PyTorch: {reason}" for reason in reasons if self.basis != "rules"]
            lines += [f"  {'':10}   ({reason})" for reason in reasons if self.basis == "rules"]
            lines += [f"  {'':10}   {sentence}" for sentence in said]
        lines += [self.refused] if self.refused else []
        lines += [*self.notes, *(f"{part}: {', '.join(names)}" for part, names in self.seen())]
        return "\n".join([*lines, self.basis_line()])

    def _repr_html_(self):
        esc = html.escape
        cell = '<td style="text-align:left;vertical-align:top;white-space:normal">'
        body = ""
        for backend, state, reasons, said in self.rows():
            words = "<br>".join(f"<code>{esc(r)}</code>" for r in reasons)
            body += f'<tr><th scope="row" style="text-align:left">{backend}</th>{cell}{esc(state)}</td>'
            body += f"{cell}{words}</td>{cell}{'<br>'.join(map(esc, said))}</td></tr>"
        heads = "".join(
            f'<th scope="col" style="text-align:left">{esc(t(f"dispatch.table.{name}"))}</th>'
            for name in ("backend", "verdict", "source" if self.basis == "rules" else "reasons", "means")
        )
        after = "".join(f"<p>{esc(line)}</p>" for line in [self.refused, *self.notes] if line)
        for part, names in self.seen():
            after += f"<p>{esc(part)}: {', '.join(f'<code>{esc(name)}</code>' for name in names)}</p>"
        after += f"<p>{esc(self.basis_line())}</p>"
        return (
            f"<p><b>{esc(self.headline())}</b></p><table>"
            f'<caption style="text-align:left">{esc(str(self.call or self.title))}</caption>'
            f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{after}"
        )

    def as_dict(self):
        """Plain values for JSON: what a record keeps and a widget shows."""
        return {
            "device": self.device,
            "basis": self.basis,
            "choice": self.choice,
            "candidates": list(self.candidates),
            "order": list(self.order),
            "verdicts": [
                {**asdict(v), "reasons": list(v.reasons), "keys": list(v.keys)} for v in self.verdicts
            ],
            "refused": self.refused,
        }
