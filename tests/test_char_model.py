"""The training run: the curve of a flashlab backend lies on that of sdpa; a wrong attention leaves it."""

import math

import pytest
import torch

from flashlab import cli, ops
from flashlab import text as words
from flashlab.text import textwidth
from flashlab.train import CharModel, Sizes, batches, compare, losses, text
from flashlab.train.__main__ import figure, line, main
from flashlab.train.run import parted, vocabulary

TINY = Sizes(context=16, batch=1, width=16, heads=2, kv_heads=1, layers=1)


def test_the_kernels_interpreted_train_as_sdpa_does():
    rows = list(compare("fa2", 4, TINY))
    found = parted(rows, TINY)
    assert found["largest"] <= found["allowed"] < 1e-5
    assert rows[-1]["loss"] < rows[0]["loss"]


@pytest.mark.parametrize("dtype, most", [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_what_rounding_may_do_to_a_longer_run_is_little(dtype, most):
    rows = list(compare("naive", 40, dtype=dtype))
    found = parted(rows, dtype=dtype)
    assert found["largest"] == found["control"] < found["allowed"] < most
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.5


@pytest.mark.parametrize("mistake", ["scale", "mask", "gradient"])
def test_a_wrong_attention_would_leave_the_curve(mistake, monkeypatch):
    def wrong(q, k, v, call):
        if mistake == "scale":
            call = call._replace(scale=call.scale * 1.01)
        elif mistake == "mask":
            call = call._replace(causal=None)
        else:
            k = k + 0.01 * (k - k.detach())  # right output, gradient of k 1 % too large
        return ops.run_naive(q, k, v, call)

    monkeypatch.setitem(ops.RUN, "fa1", wrong)
    found = parted(list(compare("fa1", 12)))
    assert found["largest"] > found["allowed"]


def test_an_untrained_model_knows_nothing_and_a_trained_one_something():
    curve = list(losses("sdpa", 60))
    assert abs(curve[0] - math.log(vocabulary())) < 0.5 and curve[-1] < 3.2


def test_the_same_seed_gives_the_same_curve_and_another_seed_another():
    a, b, c = (list(losses("naive", 3, TINY, seed=seed)) for seed in (0, 0, 1))
    assert a == b and a != c


def test_a_batch_is_text_and_what_follows_it():
    characters = sorted(set(text()))
    ((ids, following),) = batches(TINY, 1)
    assert ids.shape == following.shape == (1, 16) and torch.equal(ids[:, 1:], following[:, :-1])
    assert "".join(characters[i] for i in ids[0]) in text()


def test_a_prediction_does_not_depend_on_what_follows():
    torch.manual_seed(0)
    model = CharModel(vocabulary(), TINY)
    ((ids, _),) = batches(TINY, 1)
    other = ids.clone()
    other[:, 9:] = 0
    assert torch.allclose(model(ids)[:, :9], model(other)[:, :9]) and not torch.equal(ids, other)


def test_the_text_is_in_the_repository_with_its_licence_said():
    assert 3000 < len(text()) < 10_000 and text().isascii()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_command_prints_both_curves_and_writes_a_figure(language, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(words, "_chosen", language)
    path = tmp_path / "losses.svg"
    call = ["train", "--backend", "naive", "--steps", "3", "--device", "cpu", "--figure", str(path)]
    assert cli.main(call) == 0
    out = capsys.readouterr().out.splitlines()
    steps = [line for line in out if line.split()[0] in "012"]
    assert [line.split()[0] for line in steps] == ["0", "1", "2"] and steps[2].endswith("o")
    found = " ".join(" ".join(out).split())
    assert {"en": "rounding explains up to", "zh": "舍入最多能解释"}[language] in found
    assert all(textwidth.width(line) <= 80 for line in out if str(path) not in line)
    assert path.read_text().startswith("<?xml")


def test_the_command_says_in_one_line_what_cannot_be_trained(tmp_path, capsys):
    for call, sentence in {
        ("--backend", "fa22"): "unknown backend 'fa22'",
        ("--heads", "5"): "multiple of num_heads",
        ("--figure", str(tmp_path / "no" / "x.svg")): "there is no folder",
        ("--figure", str(tmp_path / "x.doc")): "expected a name that ends in .png, .svg, .pdf",
    }.items():
        assert main(["--steps", "1", "--device", "cpu", *call]) == 2
        out, err = capsys.readouterr()
        assert sentence in " ".join(err.split()) and not out


def test_ctrl_c_keeps_the_steps_so_far(monkeypatch, capsys):
    def interrupted(*_, **__):
        yield {"step": 0, "loss": 4.0, "sdpa": 4.0, "naive": 4.0}
        raise KeyboardInterrupt

    monkeypatch.setattr("flashlab.train.run.compare", interrupted)
    assert main(["--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "stopped; steps made: 1" in out and "largest difference 0" in out


def test_curves_that_part_are_drawn_apart_and_fail_the_command(monkeypatch, capsys):
    row = {"step": 1, "loss": 2.0, "sdpa": 4.0, "naive": 4.0}
    assert line(row, 4.0).endswith("x" + " " * 18 + "s")
    below = figure([row, row], "fa2").axes[1]
    assert [list(drawn.get_ydata()) for drawn in below.lines] == [[2.0, 2.0], [0.0, 0.0]]
    monkeypatch.setattr("flashlab.train.run.compare", lambda *args, **kwargs: iter([row]))
    assert main(["--steps", "1", "--device", "cpu"]) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("backend", ["fa1", "fa2"])
def test_on_a_gpu_a_longer_run_lies_on_the_curve_of_sdpa(backend, dtype):
    from flashlab.train.char_model import GPU

    torch.backends.cuda.matmul.allow_tf32 = False
    rows = list(compare(backend, 100, GPU, device="cuda", dtype=dtype))
    found = parted(rows, GPU, dtype)
    assert found["largest"] <= found["allowed"]
    assert rows[-1]["loss"] < rows[0]["loss"] - 1
