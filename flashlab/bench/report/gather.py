"""What a report is made of: the learner's measurements, recorded ones, exercises passed, bytes checked."""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property

from flashlab import bench, progress
from flashlab.bench.report import records
from flashlab.text import t

CHECKED = dict(B=1, Hq=2, Nq=96, D=16, causal=True, dtype="float32", block_q=32, block_k=32)


@dataclass(frozen=True)
class Facts:
    """All that the report may say. `own` and `recorded` never mix."""

    own: list
    recorded: list
    refused: list
    exercises: list
    traffic: object
    runs: list  # the records behind `own`: suite, file, provenance, how many rows were used
    stopped: set  # the files behind `recorded` whose run ended before its plan did


@dataclass(frozen=True)
class TrafficCheck:
    """Bytes that flashlab's kernel loaded and stored in the interpreter, beside what the model says.

    `rows`: (op, tensor, counted, predicted). `problem`: why it could not run, else "".
    """

    rows: tuple = ()
    sizes: str = ""
    provenance: dict = field(default_factory=dict)
    problem: str = ""

    @property
    def equal(self):
        """Whether every tensor's bytes agree; False when nothing was counted."""
        return bool(self.rows) and all(counted == predicted for *_, counted, predicted in self.rows)

    @cached_property
    def id(self):
        whole = json.dumps([self.rows, self.sizes, self.provenance], sort_keys=True)
        return f"traffic-{hashlib.sha256(whole.encode()).hexdigest()[:7]}"

    def bytes(self, op):
        return sum(counted for o, _, counted, _ in self.rows if o == op)


def facts(own_records, origin):
    """Everything for one report; `own_records` are the learner's, `origin` the provenance of this moment."""
    own, refused = records.read(own_records)
    of_package = bench.recorded()
    kept, _ = records.read(of_package, own=False)
    stopped = {record["file"] for record in of_package if record.get("stopped")}
    runs = [{"record": r, "used": sum(m.provenance is r.get("provenance") for m in own)} for r in own_records]
    mine = [m for m in own if m.own]
    return Facts(mine, kept, refused + _not_own(own), exercises(), traffic_check(origin), runs, stopped)


def _not_own(measurements):
    files = dict.fromkeys(m.file for m in measurements if not m.own)
    return [records.Refused(file, None, t("report.refused.kept")) for file in files]


def exercises():
    """The exercises passed, oldest first: dicts with `name`, `stages`, `date` and `id`."""
    found = {}
    for event in progress.events("check"):
        if event.get("passed") and event.get("stages") and event["id"] not in found:
            mark = hashlib.sha256(json.dumps(event, sort_keys=True).encode()).hexdigest()[:7]
            name, stages = event["id"], event["stages"]
            found[name] = {"name": name, "stages": stages, "date": event["at"][:10], "id": f"check-{mark}"}
    return list(found.values())


def traffic_check(origin, sizes=CHECKED):
    """Run flashlab's FlashAttention-2 kernel in Triton's interpreter and count; returns a TrafficCheck."""
    try:
        import torch

        from flashlab.interpreter import record
        from flashlab.kernels import fa2
        from flashlab.kernels.launch import Config
        from flashlab.memory import traffic
        from flashlab.problem import Problem, make_inputs

        problem = Problem(**sizes)
        q, k, v = (torch.from_numpy(x) for x in make_inputs(problem))
        causal = "top-left" if problem.causal else None
        how = dict(causal=causal, scale=problem.scale, config=Config(problem.block_q, problem.block_k))
        trace = record(lambda: fa2.forward(q, k, v, **how))
    except (ImportError, RuntimeError) as error:  # no Triton for this system, or one that is not supported
        return TrafficCheck(problem=" ".join(str(error).split()))
    rows = [
        (op, tensor, trace.bytes(op, tensor), predicted)
        for op, tensor, predicted in traffic(problem, "fa2").table()
    ]
    for op in ("load", "store"):  # bytes of tensors that the model does not know
        rest = trace.bytes(op) - sum(counted for o, _, counted, _ in rows if o == op)
        rows += [(op, "?", rest, 0)] if rest else []
    text = ", ".join(f"{name} = {value}" for name, value in sizes.items() if name not in ("causal", "dtype"))
    return TrafficCheck(tuple(rows), f"{text}, causal, fp32", origin)
