"""The lying benchmark on a real GPU: the same tricks, the same experiments."""

import pytest

from flashlab.bench import tricks
from flashlab.bench.tricks import lies

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    from flashlab.bench.tricks.cuda import Cuda

    return Cuda()


# How the clock behaves and what L2 is worth depend on the machine: not asserted here.
SURE = [
    "no-synchronize", "first-call-counted", "warmed-on-another-shape", "cached-output", "causal-flops",
    "zeros", "math-baseline", "unwarmed-baseline", "mean", "best-of", "another-backend", "unchecked",
]  # fmt: skip


@pytest.mark.parametrize("name", SURE)
def test_each_trick_is_found_on_the_gpu(device, name):
    found = tricks.detect(lies.get(name).benchmark, device, only=[name], kernel="sdpa-flash")
    if name == "another-backend" and not found:
        pytest.skip("here PyTorch would choose the flash backend, too")
    assert [x.trick for x in found] == [name]


def test_the_honest_benchmark_plays_none_of_them(device):
    assert tricks.detect(tricks.HONEST, device, only=SURE) == []


def test_without_synchronize_the_claim_is_above_the_peak_or_far_from_honest(device):
    played = tricks.play("no-synchronize", device, show=False)
    assert played.factor > 3
