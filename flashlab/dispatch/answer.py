"""Where an answer comes from: PyTorch here, the record of an H200, or PyTorch's sources; never a mixture."""

import dataclasses

from flashlab.dispatch.call import Call
from flashlab.dispatch.explanation import BASES, Explanation, Verdict
from flashlab.errors import unknown_name
from flashlab.text import t


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
    found = from_record(call) if basis in (None, "recorded") else None
    if found is not None:
        return found
    if basis == "recorded":
        raise LookupError(t("dispatch.no_record" if not records() else "dispatch.not_in_record"))
    from flashlab.dispatch.rules import from_source

    read = from_source(call, gpu)
    why = t("dispatch.no_record" if not records() else "dispatch.not_in_record")
    return read if basis == "rules" else dataclasses.replace(read, notes=(*read.notes, why))


def _asked(call, device):
    from flashlab.dispatch.ask import ask_call

    return ask_call(call, device)


def has_cuda():
    """Is there a CUDA device that PyTorch can use?"""
    import torch

    return torch.cuda.is_available()


def records():
    """The kept records of the suite `dispatch`."""
    from flashlab.bench import recorded

    return recorded("dispatch")


def from_record(call, kept=None):
    """The Explanation that was recorded for exactly this Call, or None."""
    wanted = call.fields()
    for record in records() if kept is None else kept:
        for row in record["rows"]:
            if row["call"] == wanted:
                return _explanation(row, record["provenance"])
    return None


def _explanation(row, where):
    verdicts = tuple(
        Verdict(v["backend"], v["can"], tuple(v["reasons"]), tuple(v["keys"]), v["check"])
        for v in row["verdicts"]
    )
    kernels = row.get("kernels", [])
    return Explanation(
        device=row["device"],
        basis="recorded",
        choice=row["choice"],
        order=tuple(row["order"]),
        verdicts=verdicts,
        call=Call(**row["call"]),
        refused=row["refused"],
        notes=(t("dispatch.kernels", kernels=", ".join(kernels)),) if kernels else (),
        source=", ".join(
            [where["gpu"], f"torch {where['torch']}", f"cuDNN {where['cudnn']}", where["date"][:10]]
            + [where["command"]]
        ),
    )
