"""Where an answer comes from: PyTorch here, the record of an H200, or PyTorch's sources; never a mixture."""

import dataclasses
import functools

from flashlab.dispatch.call import Call
from flashlab.dispatch.explanation import BACKENDS, BASES, Explanation, Verdict
from flashlab.dispatch.words import keys_of
from flashlab.errors import unknown_name
from flashlab.text import t

RECORDED = "H200"  # the GPU, by its name in flashlab.gpus, whose answers the package keeps


def answer(call, device="cpu", gpu="H200", basis=None):
    """The Explanation of a Call; see `flashlab.dispatch.explain`."""
    if device not in ("cpu", "cuda"):
        raise unknown_name("device", device, ("cpu", "cuda"))
    if basis not in (None, *BASES):
        raise unknown_name("basis", basis, BASES)
    if device == "cpu":
        if basis in ("recorded", "rules"):
            raise LookupError(t("dispatch.cpu_only_asked", basis=basis))
        return _asked(call, "cpu")
    if basis == "asked" or (basis is None and has_cuda()):
        if not has_cuda():
            raise LookupError(t("dispatch.no_gpu"))
        return _asked(call, "cuda")
    kept = index() if gpu == RECORDED else {}
    if basis != "rules" and call in kept:
        return from_row(*kept[call])
    missing = "not_in_record" if kept else "no_record" if gpu == RECORDED else "other_gpu"
    why = t(f"dispatch.{missing}", gpu=gpu)
    if basis == "recorded":
        raise LookupError(why)
    from flashlab.dispatch.rules import VERSIONS, from_source

    read = from_source(call, gpu)
    notes = [] if basis == "rules" else [why]
    return dataclasses.replace(read, notes=(*notes, *otherwise(read, gpu, VERSIONS[1])))


def otherwise(found, gpu, version):
    """A sentence, in a list, if the rules of this version of torch choose something else for that call."""
    from flashlab.dispatch.rules import from_source

    read = from_source(found.call, gpu, version)
    wanted = read.candidates if read.choice is None else (read.choice,)
    same = wanted == (found.candidates if found.choice is None else (found.choice,))
    choice = t("dispatch.head.or").join(wanted)
    return [] if same else [t("dispatch.otherwise", version=version, choice=choice)]


def _asked(call, device):
    from flashlab.dispatch.ask import ask_call

    return ask_call(call, device)


def has_cuda():
    """Is there a CUDA device that PyTorch can use?"""
    import torch

    return torch.cuda.is_available()


@functools.cache
def index():
    """What the kept records of the suite `dispatch` say: Call -> (row, provenance)."""
    from flashlab.bench import recorded
    from flashlab.bench.compact import expand

    return {
        Call(**row["call"]): (expand(row, kept), kept["provenance"])
        for kept in recorded("dispatch")
        for row in kept["rows"]
        if "error" not in row
    }


def from_row(row, where):
    """The Explanation that a row of a record holds (see flashlab.bench.dispatch); `where`: its provenance."""
    from flashlab.dispatch.rules import VERSIONS

    refusals = row["no"]

    def verdict(backend):
        if backend not in refusals:
            return Verdict(backend, True)
        reasons = tuple(refusals[backend])
        return Verdict(backend, False, reasons, keys_of(backend, reasons))

    machine = f"{where['gpu']}, torch {where['torch'].partition('+')[0]}"
    place = [where["gpu"], f"torch {where['torch']}", f"cuDNN {readable(where['cudnn'])}", where["date"][:10]]
    found = Explanation(
        device=row["device"],
        basis="recorded",
        choice=row["choice"],
        order=tuple(row["order"]),
        verdicts=tuple(map(verdict, BACKENDS)),
        call=Call(**row["call"]),
        refused=row.get("refused", ""),
        machine=machine,
        kernels=tuple((part, tuple(names)) for part, names in row.get("kernels", {}).items()),
        source=", ".join([*place, where["command"]]),
    )
    notes = otherwise(found, RECORDED, VERSIONS[0]) if found.device == "cuda" else []
    if row.get("masked_row"):
        notes.append(t(f"dispatch.masked_row.{row['masked_row']}", where=machine))
    return dataclasses.replace(found, notes=tuple(notes))


def readable(cudnn):
    """91900, as cuDNN counts from version 9 on, is "9.19.0"."""
    return f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}" if cudnn >= 90000 else str(cudnn)
