"""The comparison of PyTorch's math and flash paths weighs what autograd really keeps."""

import pytest

import flashlab
from flashlab.bench import sdpa_paths
from flashlab.quiz import prompts

N, HEADS, D = 192, 2, 16


@pytest.fixture(scope="module")
def small():
    return sdpa_paths.compare(n=N, heads=HEADS, d=D, repeats=1, quiet=True)


@pytest.fixture(autouse=True)
def english():
    flashlab.lang("en")
    yield
    flashlab.lang("en")


def test_math_keeps_the_whole_matrix_of_weights(small):
    assert small.math.kept_bytes >= N * N * HEADS * 4
    assert small.weights_bytes == N * N * HEADS * 4


def test_the_weights_are_found_by_their_shape_even_where_they_are_not_the_largest_piece():
    assert sdpa_paths.compare(n=4, heads=1, d=32, repeats=1, quiet=True).weights_bytes == 4 * 4 * 4


def test_flash_keeps_its_four_matrices_and_one_number_a_row(small):
    assert small.flash.kept_bytes == HEADS * N * (4 * D + 1) * 4
    assert small.lse_bytes == HEADS * N * 4


def test_what_flash_keeps_doubles_with_n_and_what_math_keeps_nearly_quadruples(small):
    twice = sdpa_paths.compare(n=2 * N, heads=HEADS, d=D, repeats=1, quiet=True)
    assert twice.flash.kept_bytes == 2 * small.flash.kept_bytes
    assert 3 * small.math.kept_bytes < twice.math.kept_bytes <= 4 * small.math.kept_bytes
    assert twice.weights_bytes == 4 * small.weights_bytes


def test_both_paths_agree_up_to_rounding_and_are_really_two_paths(small):
    assert 0 < small.difference < 1e-5 and 0 < small.grad_difference < 1e-4


def test_the_ratio_is_the_quotient_of_the_two_weights(small):
    assert small.ratio == pytest.approx(small.math.kept_bytes / small.flash.kept_bytes)
    assert f"{small.ratio:.1f} times" in repr(small)


@pytest.mark.parametrize(
    "language, word", [("en", "kept for the backward pass"), ("zh", "为反向传播保留的内存")]
)
def test_the_table_names_size_machine_and_numbers_in_both_languages(small, language, word):
    flashlab.lang(language)
    for shown in (repr(small), small._repr_html_()):
        assert word in shown and f"N = {N}" in shown and small.torch in shown
        assert sdpa_paths.readable_bytes(small.flash.kept_bytes) in shown
    assert '<th scope="row"' in small._repr_html_() and "<caption" in small._repr_html_()


def test_progress_is_printed_while_it_runs_and_quiet_means_quiet(capsys):
    sdpa_paths.compare(n=16, heads=1, d=8, repeats=1)
    assert capsys.readouterr().out.split() == ["flash", "path", ".", "math", "path", "."]
    sdpa_paths.compare(n=16, heads=1, d=8, repeats=1, quiet=True)
    assert capsys.readouterr().out == ""


def test_a_slow_path_is_run_once_and_a_quick_one_as_often_as_asked(monkeypatch, capsys):
    for patience, dots in ((0.0, "."), (60.0, "...")):
        monkeypatch.setattr(sdpa_paths, "PATIENCE", patience)
        sdpa_paths.compare(n=16, heads=1, d=8, repeats=3)
        assert capsys.readouterr().out.split()[2::3] == [dots, dots]


def test_a_size_that_does_not_fit_is_refused_with_one_that_does(monkeypatch):
    monkeypatch.setattr(sdpa_paths, "free_bytes", lambda: 2**30)
    with pytest.raises(
        MemoryError, match=r"N = 4096 needs about 2\.5 GiB .* 1 GiB is free here\. n=2048 fits"
    ):
        sdpa_paths.compare(n=4096)


def test_without_a_size_it_takes_one_that_fits_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(sdpa_paths, "free_bytes", lambda: 5 * 4 * 512 * 512)
    result = sdpa_paths.compare(heads=1, d=8, repeats=1)
    assert result.n == 512 and "N = 512 instead of 4096" in capsys.readouterr().out


def test_an_unknown_amount_of_memory_refuses_nothing():
    assert sdpa_paths.choose_size(4096, 8, None) == 4096
    assert sdpa_paths.choose_size(None, 8, None) == 4096
    assert sdpa_paths.choose_size(None, 8, 0) == min(sdpa_paths.SIZES)


def test_free_memory_is_a_plausible_number_here():
    free = sdpa_paths.free_bytes()
    assert free is None or 2**20 < free < 2**45


@pytest.mark.parametrize(
    "wrong", [dict(n=0), dict(n=2.5), dict(n=8, heads=-1), dict(n=8, d=0), dict(n=8, repeats=0)]
)
def test_a_size_that_is_no_size_is_a_value_error(wrong):
    with pytest.raises(ValueError, match="whole number from 1 up, got"):
        sdpa_paths.compare(**wrong)


@pytest.mark.parametrize(
    "size, text", [(16, "16 B"), (131072, "128 KiB"), (2**29, "512 MiB"), (5 * 2**29, "2.5 GiB")]
)
def test_bytes_are_written_in_binary_units(size, text):
    assert sdpa_paths.readable_bytes(size) == text


def test_the_start_pages_predictions_hold_the_ratio_that_the_measurement_gives(small):
    def formula(n, d):  # math: weights, scaled q and k, v; flash: q, k, v, o and a number a row
        return (n + 3 * d) / (4 * d + 1)

    assert small.ratio == pytest.approx(formula(N, D))
    ratio = prompts.prediction("S-p01")
    assert round(formula(4096, 64), 1) == ratio["answer"]
    growth = prompts.prediction("S-p02")
    assert 1.7 < formula(1024, 64) / formula(512, 64) < formula(4096, 64) / formula(2048, 64) < 2
    assert growth["choices"][growth["answer"]]["en"] == "nearly doubles"


def test_what_was_weighed_is_freed_with_its_graph():
    import weakref

    import torch

    def hook(grad):  # lives as long as the graph that it is hung on
        pass

    x, kept = torch.ones(4, requires_grad=True), {}
    with sdpa_paths.weighing(kept):
        scores = x * 2
        scores.register_hook(hook)
        p = torch.softmax(scores, -1)  # softmax keeps its own result for the backward pass
        o = p @ x
    dx = torch.autograd.grad(o, x, retain_graph=True)[0]  # as a backward pass is timed, many times
    assert torch.equal(dx, torch.full((4,), 0.25)) and sum(size for _, size in kept.values()) >= 32
    graph = weakref.ref(hook)
    del hook, scores, p, o
    assert graph() is None
