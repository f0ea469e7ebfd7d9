"""`TilePlayer`: plays traces. Matrices as grids of tiles in HBM, what is on chip below, bytes counted.

    TilePlayer.of(Problem(Nq=1024))                          standard attention, FA1 and FA2 in step
    TilePlayer({"mine": t1, "FA2": t2})                      any traces, side by side
    TilePlayer(lambda: kernel[grid](q, k, v, o, n))          a Triton kernel, run in the interpreter

What does not fit becomes a sentence in the widget: the notebook goes on. The drawing is `tile_player.js`, the
states it draws are worked out in `tile_frames.js` from the packed traces.
"""

import numpy as np
import traitlets

from flashlab import gpus, memory, tiled
from flashlab.errors import unknown_name
from flashlab.problem import Problem
from flashlab.text import t
from flashlab.trace import Trace
from flashlab.widgets._base import Widget
from flashlab.widgets.packing import pack

SYNCS = ("bytes", "step")
DIRECTIONS = ("forward", "backward")
ALGORITHMS = {"standard": "standard", "FA1": "fa1", "FA2": "fa2"}
MOST_TILES = 4096  # in one pass over S: 64 x 64


class TilePlayer(Widget):
    """Plays one trace, or several side by side in step.

    traces: a `flashlab.trace.Trace`, a function of no arguments that launches Triton kernels (it is recorded
    with `flashlab.interpreter.record`), or a dict name -> either. problem: its sizes draw the last, shorter
    block of traces in block numbers. tensors: {"q": q} names a recorded kernel's
    tensors. sync: "bytes" (all have moved the same number of bytes; default where several play) or "step".
    position: bytes moved or steps done, by `sync`; default: well under way. hbm: {name: {tensor: bytes}} that
    come through an L2 cache, l2: {"gpu": its name, "size": in words}, for the switch that shows them.

    Input that cannot be played leaves a sentence in `fault`, which the widget shows instead of the picture.
    """

    text_area = "player"
    esm_first = ("tile_frames.js", "tile_layout.js", "tile_stage.js")
    twin_height = 720

    players = traitlets.List().tag(sync=True)  # of {"name", "trace": packed, "hbm", "sizes"}
    setting = traitlets.Unicode().tag(sync=True)
    fault = traitlets.Unicode().tag(sync=True)
    sync = traitlets.Enum(SYNCS, "bytes").tag(sync=True)
    position = traitlets.Float(0.0).tag(sync=True)
    l2 = traitlets.Dict().tag(sync=True)
    level = traitlets.Enum(("sm", "hbm"), "sm").tag(sync=True)

    def __init__(
        self,
        traces,
        *,
        problem=None,
        tensors=None,
        sync=None,
        position=None,
        hbm=None,
        l2=None,
        setting="",
        **traits,
    ):
        super().__init__(**traits)
        try:
            played = self._played(traces, tensors)
            sync = sync or ("bytes" if len(played) > 1 else "step")
            if sync not in SYNCS:
                raise unknown_name("sync", sync, SYNCS)
            rest = {"sizes": _sizes(problem)}
            self.players = [
                {"name": name, "trace": pack(trace), "hbm": (hbm or {}).get(name), **rest}
                for name, trace in played.items()
            ]
            self.set_trait("sync", sync)
            ends = [trace.bytes() if sync == "bytes" else len(trace) for trace in played.values()]
            start = round(0.55 * min(ends)) if position is None else position
            self.position = float(min(max(start, 0), max(ends)))
            self._summary = self._finding(played)
        except _Fault as fault:
            self._refuse(str(fault))
        except (ValueError, TypeError) as error:
            self._refuse(self._say("refused", error=_sentence(error)))
        self.setting = setting or self._say("setting_plain")
        self.l2 = l2 or {}

    @classmethod
    def of(cls, problem, direction="forward", *, algorithms=tuple(ALGORITHMS), gpu="H200", **options):
        """The player of one head of a `flashlab.Problem`: its traces come from the NumPy loops of
        `flashlab.tiled`.

        direction: "forward" or "backward". algorithms: any of "standard", "FA1", "FA2". gpu: whose L2 cache
        the switch shows. `options` go to `TilePlayer`.
        """
        try:
            traces, hbm, l2 = one_head(problem, direction, algorithms, gpu)
            setting = _setting(problem, direction, options.get("strings", {}).get("lang"))
        except (ValueError, TypeError) as error:
            return cls(error, **options)
        return cls(traces, **{"problem": problem, "hbm": hbm, "l2": l2, "setting": setting, **options})

    def _played(self, traces, tensors):
        """{name: Trace} of what was given; raises _Fault or TypeError."""
        if isinstance(traces, Exception):  # what `of` could not make
            raise traces
        given = traces if isinstance(traces, dict) else {self.strings["names"]["trace"]: traces}
        if not given:
            raise ValueError("expected at least one trace, got none")
        played = {}
        for name, trace in given.items():
            if callable(trace):
                trace = self._recorded(str(name), trace, tensors)
            if not isinstance(trace, (list, tuple)):
                raise TypeError(
                    f"expected a Trace or a function that launches kernels, got {type(trace).__name__}"
                )
            if not trace:
                raise _Fault(self._say("empty", name=name))
            played[str(name)] = trace if isinstance(trace, Trace) else Trace(trace)
        return played

    def _recorded(self, name, launch, tensors):
        from flashlab import interpreter

        try:
            return interpreter.record(launch, tensors)
        except Exception as error:  # whatever a learner's kernel may raise
            raise _Fault(self._say("failed", name=name, error=_sentence(error))) from error

    def _refuse(self, words):
        self.fault, self.players = words, []
        self._summary = words

    def _say(self, key, **values):
        return t(f"player.{key}", language=self.strings.get("lang"), **values)

    def _finding(self, played):
        """The title's first half for readers who get no picture: every player's bytes."""
        sums = sorted((trace.bytes(), name) for name, trace in played.items())
        names = self.strings["names"]
        parts = [self._say("finding_one", name=names.get(n.lower(), n), bytes=bytes_text(b)) for b, n in sums]
        return self._say("summary", finding=self.strings["comma"].join(parts))

    def summary(self):
        return self._summary


class _Fault(Exception):
    """A whole sentence for the widget."""


def one_head(problem, direction="forward", algorithms=tuple(ALGORITHMS), gpu="H200"):
    """What one head of `problem` moves: ({name: Trace} from the loops of `flashlab.tiled`, {name: {tensor:
    bytes}} behind the L2 cache of `gpu` (a head's share of the whole problem), {"gpu", "size"}).

    Raises ValueError for unknown names and for more tiles than can be watched.
    """
    p = problem
    if not isinstance(p, Problem):
        raise TypeError(f"expected a flashlab.Problem, got {type(p).__name__}")
    if direction not in DIRECTIONS:
        raise unknown_name("direction", direction, DIRECTIONS)
    for name in algorithms:
        if name not in ALGORITHMS:
            raise unknown_name("algorithm", name, ALGORITHMS)
    tiles = -(-p.Nq // p.block_q) * -(-p.Nk // p.block_k)
    if tiles > MOST_TILES:
        raise ValueError(t("player.too_many", tiles=tiles, most=MOST_TILES))
    q, k = np.zeros((p.Nq, p.D), np.float32), np.zeros((p.Nk, p.D), np.float32)
    inputs = (q, k, k) if direction == "forward" else (q, k, k, q, np.zeros(p.Nq, np.float32), q)
    options = {"block_q": p.block_q, "block_k": p.block_k, "causal": p.causal, "scale": p.scale}
    gpu, traces, hbm = gpus.get(gpu), {}, {}
    for name in algorithms:
        short = ALGORITHMS[name]
        traces[name] = Trace(dtype=p.dtype)
        getattr(tiled, f"{short}_{direction}")(*inputs, **options, trace=traces[name])
        through, hbm[name] = memory.traffic(p, short, direction, "hbm", gpu=gpu), {}
        for _, tensor, moved in through.table():
            hbm[name][tensor] = hbm[name].get(tensor, 0) + moved / (p.B * p.Hq)
    return traces, hbm, {"gpu": gpu.name, "size": f"{gpu.l2_bytes / 2**20:g} MiB"}


def _sizes(p):
    """{"rows": [blocks of queries, length of the last one against a whole one], "cols": for keys}."""
    if p is None:
        return None
    cut = {"rows": (p.Nq, p.block_q), "cols": (p.Nk, p.block_k)}
    return {side: [-(-n // b), (n - 1) % b / b + 1 / b] for side, (n, b) in cut.items()}


def bytes_text(x):
    """Bytes for people, three digits, units of 1000: as `bytes` in tile_frames.js."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while x >= 999.5 and len(units) > 1:
        x, units = x / 1000, units[1:]
    return f"{x:.0f} B" if units[0] == "B" else f"{float(f'{x:.3g}'):g} {units[0]}"


def _setting(p, direction, language=None):
    words = {name: t(f"player.{name}", language=language) for name in ("causal", f"{direction}_pass")}
    return t(
        "player.setting",
        language=language,
        direction=words[f"{direction}_pass"],
        Nq=f"{p.Nq:,}",
        Nk=f"{p.Nk:,}",
        D=p.D,
        dtype=p.dtype,
        block_q=p.block_q,
        block_k=p.block_k,
        mask=words["causal"] if p.causal else "",
    )


def _sentence(error):
    """An exception as a sentence: its words, or its type where it has none."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if words[-1] in ".!?。" else words + "."
