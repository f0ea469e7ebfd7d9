"""Every rung of the ladder takes q, k, v, causal, scale, gives o and lse, and is right by the same rule."""

import inspect

import numpy as np
import pytest

import flashlab
from flashlab import data, reference, tiled
from flashlab.problem import Problem, make_inputs
from flashlab.testing import assert_close_to_reference


def torch_rung(backend):
    def attention(q, k, v, *, causal=False, scale=None):
        import torch

        tensors = (torch.from_numpy(np.ascontiguousarray(x)) for x in (q, k, v))
        out = flashlab.attention(*tensors, causal=causal, scale=scale, backend=backend, return_lse=True)
        return tuple(x.numpy() for x in out)

    return attention


RUNGS = {
    "naive NumPy": reference.attention,
    "tiled FA1": tiled.fa1_forward,
    "tiled FA2": tiled.fa2_forward,
    "naive PyTorch": torch_rung("naive"),
    "Triton FA2": torch_rung("fa2"),
}


@pytest.mark.parametrize("name", RUNGS)
def test_every_rung_has_the_same_signature(name):
    parameters = inspect.signature(RUNGS[name]).parameters
    assert list(parameters)[:3] == ["q", "k", "v"]
    assert (parameters["causal"].default, parameters["scale"].default) == (False, None)
    assert all(p.kind is p.KEYWORD_ONLY for n, p in parameters.items() if n not in "qkv")


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("causal", [False, True, "bottom-right"])
def test_every_rung_is_right_on_ragged_sizes_and_shared_heads(name, causal):
    q, k, v = make_inputs(Problem(B=2, Hq=4, Hkv=2, Nq=67, Nk=70, D=24, dtype="float32", causal=causal))
    o, lse = RUNGS[name](q, k, v, causal=causal)
    assert_close_to_reference(dict(o=o, lse=lse), q, k, v, causal=causal)


@pytest.mark.parametrize("name", RUNGS)
def test_every_rung_gives_the_numbers_of_the_running_example_and_of_the_real_sentence(name):
    tiny = [x[None, None].astype(np.float32) for x in data.tiny()]
    o, lse = RUNGS[name](*tiny, scale=float(np.log(2)))
    np.testing.assert_allclose(o[0, 0, :, 0], [37 / 6, 167 / 21, 5.75, 6.6, 8 / 3, 4], rtol=1e-6)
    np.testing.assert_allclose(np.exp(lse[0, 0]), [6, 10.5, 24, 1.875, 24.75, 20], rtol=1e-6)
    real = [x[None, :4].astype(np.float32) for x in data.minilm()[:3]]
    assert_close_to_reference(dict(zip(("o", "lse"), RUNGS[name](*real), strict=True)), *real)
