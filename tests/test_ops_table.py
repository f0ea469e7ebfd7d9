"""The table of backends in the docstring of flashlab.ops: every "yes" runs, every "no" raises."""

import contextlib
import subprocess
import sys

import pytest
import torch
from kernel_cases import draw
from torch.autograd import forward_ad
from varlen_cases import bounds

import flashlab
from flashlab import ops

REFUSED = (NotImplementedError, TypeError, ValueError, RuntimeError)


def read_table():
    """Feature -> {column: "yes", "no" or "-"}, from the docstring."""
    lines = ops.__doc__.split("    feature")[1].split("\n\n")[0].splitlines()
    columns = lines[0].split()
    return {line[4:31].strip(): dict(zip(columns, line[31:].split(), strict=True)) for line in lines[1:]}


TABLE = read_table()
SHAPES = {  # feature -> (B, Hq, Hkv, Nq, Nk, D)
    "Nq != Nk": (1, 2, 2, 3, 9, 8),
    "rows without any key": (1, 2, 2, 3, 0, 8),
    "Hq a multiple of Hkv": (1, 4, 2, 3, 3, 8),
    "D > 256": (1, 1, 1, 2, 2, 257),
    "causal bottom-right": (1, 2, 2, 3, 5, 8),
}
ARGUMENTS = {
    "causal top-left": dict(causal="top-left"),
    "causal bottom-right": dict(causal="bottom-right"),
    "scale of 0 or below": dict(scale=-0.5),
    "key_lengths": dict(key_lengths=torch.tensor([2])),
    "dropout": dict(dropout_p=0.5, seed=1),
    "return_lse": dict(return_lse=True),
    "gradient through lse": dict(return_lse=True),
}
GRADIENTS = ("gradients", "gradient through lse", "gradient of gradients")


def call(column, feature, device="cpu"):
    """Use `feature` of a backend or call, as far as it goes; returns o."""
    with forward_ad.dual_level() if feature == "forward-mode derivative" else contextlib.nullcontext():
        return use(column, feature, device)


def use(column, feature, device):
    q, k, v = draw(SHAPES.get(feature, (1, 2, 2, 3, 3, 8)), device=device)
    dtype = torch.float16 if device == "cuda" and feature != "D > 256" else torch.float32
    q, k, v = (x.to(dtype).requires_grad_(feature in GRADIENTS) for x in (q, k, v))
    if feature == "forward-mode derivative":
        q = forward_ad.make_dual(q, torch.ones_like(q))
    how = dict(ARGUMENTS.get(feature, {}))
    if column == "attention_varlen":
        cu_q, cu_k = (bounds([x.shape[2]], device) for x in (q, k))
        packed = (x[0].transpose(0, 1) for x in (q, k, v))
        result = flashlab.attention_varlen(*packed, cu_q, cu_k, **how)
    elif column == "decode_attention":
        if how.get("causal") == "bottom-right":
            del how["causal"]  # it is always so, and there is no such argument
        lengths = torch.tensor([k.shape[2]], dtype=torch.int32, device=device)
        result = flashlab.decode_attention(q, k, v, lengths, **how)
    else:
        result = flashlab.attention(q, k, v, backend=column, **how)
    if feature == "forward-mode derivative":
        assert forward_ad.unpack_dual(result).tangent.abs().sum() > 0
        return forward_ad.unpack_dual(result).primal
    o = result[0] if isinstance(result, tuple) else result
    if feature in GRADIENTS:
        loss = result[1].sum() if feature == "gradient through lse" else o.square().sum()
        again = feature == "gradient of gradients"
        grads = torch.autograd.grad(loss, (q, k), create_graph=again)
        assert all(g.isfinite().all() for g in grads) and grads[0].abs().sum() > 0
        if again:
            torch.autograd.grad(sum(g.square().sum() for g in grads), (q, k))
    return o


CELLS = [(feature, column, says) for feature, row in TABLE.items() for column, says in row.items()]


@pytest.mark.parametrize(
    ("feature", "column", "says"),
    [cell for cell in CELLS if cell[0] not in ("without Triton", "CUDA tensors") and cell[2] != "-"],
)
def test_every_yes_runs_and_every_no_raises(feature, column, says):
    if column not in ("sdpa", "naive"):
        pytest.importorskip("triton")
    if says == "no" or column == "fa3":  # which runs on Hopper GPUs only
        with pytest.raises(REFUSED):
            call(column, feature)
    else:
        assert call(column, feature).isfinite().all()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("feature", "column", "says"), [cell for cell in CELLS if cell[0] != "without Triton"]
)
def test_every_yes_runs_and_every_no_raises_on_a_gpu(feature, column, says):
    if feature == "key_lengths":
        pytest.skip("its lengths live on the CPU; test_kernels_gpu has them on the GPU")
    if column == "fa3" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("fa3 runs on Hopper GPUs only")
    if says == "no":
        with pytest.raises(REFUSED):
            call(column, feature, "cuda")
    elif says == "yes":
        assert call(column, feature, "cuda").isfinite().all()


def test_without_triton_every_yes_runs_and_every_no_raises():
    code = (
        "import sys; sys.modules['triton'] = None; sys.path.insert(0, 'tests')\n"
        "import test_ops_table as t\n"
        "for column, says in t.TABLE['without Triton'].items():\n"
        "    try: t.call(column, 'Nq != Nk'); print(column, 'yes')\n"
        "    except RuntimeError: print(column, 'no')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    got = dict(line.split() for line in run.stdout.splitlines())
    assert got == TABLE["without Triton"], run.stderr


def test_the_table_has_every_backend():
    columns = {"fa1", "fa2", "fa3", "sdpa", "naive", "attention_varlen", "decode_attention"}
    assert all(set(row) == columns and set(row.values()) <= {"yes", "no", "-"} for row in TABLE.values())
    assert columns | {"auto"} == {*ops.BACKENDS, "attention_varlen", "decode_attention"}
    assert len(TABLE) == 17


@pytest.mark.parametrize("call", [flashlab.attention_varlen, flashlab.decode_attention])
def test_calls_without_a_backend_refuse_one(call):
    q, k, v = draw((1, 1, 1, 2, 2, 8))
    with pytest.raises(TypeError, match="backend"):
        call(q, k, v, torch.tensor([2]), backend="naive")


@pytest.mark.parametrize(
    ("capability", "dim", "want"),
    [
        ((8, 0), 64, "fa2"),
        ((9, 0), 256, "fa2"),
        ((12, 0), 1, "fa2"),
        ((7, 5), 64, "sdpa"),
        ((9, 0), 257, "sdpa"),
    ],
)
def test_auto_on_a_gpu_takes_fa2_from_sm_80_on(capability, dim, want, monkeypatch):
    class OnGPU:
        device, shape = torch.device("cuda", 0), (1, 1, 4, dim)

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    plain = ops.Call(None, 1.0, None, 0.0, None, False)
    assert ops.choose(OnGPU, OnGPU, plain) == want
    lacking = plain._replace(need_lse=True)
    assert ops.choose(OnGPU, OnGPU, lacking) == ("fa2" if want == "fa2" else "naive")
