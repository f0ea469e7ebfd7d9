"""Sentences for a résumé carry exactly the measured numbers, or are not written."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from report_cases import GPU, ORIGIN, both, record, row

import flashlab
from flashlab import bench
from flashlab.bench import peers
from flashlab.bench.report import gather, records, sentences, wording
from flashlab.bench.report.pairs import STANDARD, compare, digits
from flashlab.bench.report.sentences import NotMeasured, speed_and_memory, training, training_memory

TIME = st.floats(1e-3, 1e4)
SIZE = st.integers(1, 2**40)


@pytest.fixture(autouse=True)
def english():
    flashlab.lang("en")
    yield
    flashlab.lang("en")


def read(*rows, **more):
    """The usable measurements of one record; nothing may be refused."""
    found, refused = records.read([record(*rows, **more)])
    assert refused == []
    return found


def as_printed(more, less):
    ratio = more / less
    return f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:,.0f}"


@settings(deadline=None)
@given(standard=TIME, flash=TIME, spread=st.floats(0, 0.2))
def test_the_ratio_in_the_sentence_is_that_of_the_rows_and_slower_is_never_called_faster(
    standard, flash, spread
):
    flashlab.lang("en")
    text = speed_and_memory(read(*both(standard, flash, spread=spread))).text
    apart = flash * (1 + spread) < standard * (1 - spread) or standard * (1 + spread) < flash * (1 - spread)
    more, less = max(standard, flash), min(standard, flash)
    if not apart or as_printed(more, less) == "1.0":
        assert "no faster and no slower (within the spread)" in text and not re.search(r"\dx", text)
        return
    word, other = ("faster", "slower") if flash < standard else ("slower", "faster")
    assert f" {as_printed(more, less)}x {word} than" in text and other not in text


@settings(deadline=None)
@given(standard=SIZE, flash=SIZE)
@example(standard=2, flash=7071465)  # the inverse of the ratio is rounded twice
def test_more_memory_is_never_called_less_in_either_language(standard, flash):
    rows = both(3.0, 1.0)
    rows[0]["peak_bytes"], rows[1]["peak_bytes"] = standard, flash
    flashlab.lang("en")
    english = speed_and_memory(read(*rows)).text
    flashlab.lang("zh")
    chinese = speed_and_memory(read(*rows)).text
    ratio = as_printed(max(standard, flash), min(standard, flash))
    if ratio == "1.0":
        assert "no more and no less attention memory" in english and "注意力内存相同" in chinese
    elif flash < standard:
        assert f"3.0x faster and {ratio}x less attention memory" in english
        assert f"速度是其 3.0 倍，注意力内存是其 1/{ratio}" in chinese
    else:
        assert f"3.0x faster and {ratio}x more attention memory" in english
        assert f"注意力内存更多，是其 {ratio} 倍" in chinese


def test_a_sentence_names_machine_case_baseline_date_version_and_its_records():
    rows = both(3.4, 1.0, n=8192, dtype="float16", peak_bytes=1)
    rows[0]["peak_bytes"] = 18
    found = speed_and_memory(read(*rows, origin=GPU, suite="kernels"))
    assert found.text == (
        "Measured PyTorch SDPA's FlashAttention path on an RTX 4090 (fp16, N = 8192, D = 64, B = 1, 4 heads, "
        "no mask, forward): 3.4x faster and 18x less attention memory than unfused attention (matmul, "
        "softmax, matmul); 2026-12-01, flashlab 0.1.0."
    )
    made = record(*rows, origin=GPU, suite="kernels")
    assert found.ids == tuple(records.record_id(made, r) for r in reversed(rows))


@pytest.mark.parametrize("peer", [p for p in peers.all_peers() if p not in ("fa1", *STANDARD)])
def test_every_peer_but_fa1_gets_a_sentence_that_names_it(peer):
    rows = both(3.0, 1.0, dtype="float16")
    rows[1]["peer"] = peer
    text = speed_and_memory(read(*rows, origin=GPU, suite="kernels")).text
    names = "FlashAttention|cuDNN|memory-efficient|FlexAttention"
    assert re.match(rf"Measured .*({names}).* on an RTX 4090", text)


def test_the_longest_n_is_taken_and_not_the_best_ratio():
    found = speed_and_memory(read(*both(90.0, 1.0, n=512), *both(3.0, 2.0, n=2048))).text
    assert "N = 2048" in found and "1.5x faster" in found and "90" not in found


def test_forward_and_backward_are_added_up_and_only_on_a_gpu():
    rows = [*both(3.0, 1.0), *both(6.0, 5.0, direction="backward")]
    assert "1.5x faster" in training(read(*rows, origin=GPU, suite="kernels")).text
    with pytest.raises(NotMeasured, match="on a GPU of yours"):
        training(read(*rows))
    with pytest.raises(NotMeasured) as missing:
        training(read(*both(3.0, 1.0), origin=GPU, suite="kernels"))
    assert missing.value.command == sentences.KERNELS


def test_training_takes_the_causal_mask_where_it_was_measured():
    full = [*both(3.0, 1.0), *both(6.0, 2.0, direction="backward")]
    causal = [r for d in ("forward", "backward") for r in both(2.0, 1.0, direction=d, causal=True)]
    text = training(read(*full, *causal, origin=GPU, suite="kernels")).text
    assert "causal, forward + backward): 2.0x faster" in text


def test_kept_and_extra_memory_have_their_own_words():
    rows = both(3.0, 1.0, direction="backward", kept_bytes=100)
    rows[0]["kept_bytes"] = 470
    assert "4.7x less memory kept for the backward pass" in training_memory(read(*rows)).text
    pair = [dict(peer=p, N=4096, H=4, D=64, extra_bytes=b) for p, b in (("fa2", 10), ("standard", 4190))]
    text = training_memory(read(*pair, origin=GPU, suite="memory")).text
    assert "bf16, N = 4096" in text and "419x less attention memory" in text


def test_two_lengths_say_the_batch_that_they_share_or_the_tokens_that_they_share():
    for sizes, said in (((1, 1), "B = 1,"), ((8, 2), "B · N = 4096,"), ((8, 3), "D = 64, 4 heads")):
        pairs = [both(3.0, 1.0, n=n, B=b) for n, b in zip((512, 2048), sizes, strict=True)]
        assert said in sentences.short_and_long(read(*pairs[0], *pairs[1])).text


def test_an_encoders_sentence_needs_both_lengths_without_a_mask():
    rows = [*both(1.2, 1.0, n=512), *both(4.0, 1.0, n=2048)]
    text = sentences.short_and_long(read(*rows)).text
    assert "1.2x faster at N = 512 and 4.0x faster at N = 2048" in text
    for lacking in (rows[:2], rows[2:], [r | {"causal": True} for r in rows]):
        lacking = [r | {"tflops": None} for r in lacking]
        lacking = [{k: v for k, v in r.items() if k != "tflops"} for r in lacking]
        with pytest.raises(NotMeasured, match="N = 512"):
            sentences.short_and_long(read(*lacking))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_was_not_measured_is_not_written_and_the_command_is_named(language):
    flashlab.lang(language)
    found = sentences.profiles([], [], None)
    assert set(found) == {"llm", "nlp", "graduate"}
    for part in sum(found.values(), []):
        assert isinstance(part, NotMeasured) and len(str(part)) > 20
    commands = {part.command for part in sum(found.values(), [])}
    assert {sentences.CPU, sentences.KERNELS, sentences.TRAFFIC} <= commands


def test_how_much_faster_a_training_step_became_is_never_written():
    everything = read(*both(3.0, 1.0), *both(6.0, 2.0, direction="backward"), origin=GPU, suite="kernels")
    with pytest.raises(NotMeasured, match="tokens per second"):
        sentences.whole_step(everything)


def test_rows_of_different_runs_are_not_compared():
    standard, flash = both(3.0, 1.0)
    other = ORIGIN | {"date": "2026-12-02T10:00:00+00:00"}
    found, _ = records.read([record(standard), record(flash, origin=other)])
    with pytest.raises(NotMeasured):
        speed_and_memory(found)


def test_the_math_path_is_no_baseline_for_sixteen_bits():
    for dtype, fair in (("float32", True), ("float16", False), ("bfloat16", False)):
        rows = [row("sdpa-math", 9.0, dtype=dtype), row("sdpa-flash", 1.0, dtype=dtype)]
        assert bool(compare(read(*rows), "ms")) is fair


def test_recorded_figures_get_into_no_sentence_whichever_way_they_come():
    kept, _ = records.read(bench.recorded(), own=False)
    assert kept and not any(m.own for m in kept)
    given_as_own = [{**r, "provenance": GPU, "file": "mine.json"} for r in bench.recorded("kernels")]
    renamed, _ = records.read(given_as_own)
    copied, _ = records.read([{**r, "file": "mine.json"} for r in bench.recorded()])
    for found in (kept, renamed, copied):
        assert found and not any(m.own for m in found)
        for part in sum(sentences.profiles(found, [], None).values(), []):
            assert isinstance(part, NotMeasured)


def test_one_recorded_time_makes_a_whole_file_recorded():
    stolen = bench.recorded("kernels")[0]["rows"][0]
    mine = record(*both(3.0, 1.0), stolen, origin=GPU, suite="kernels")
    found, _ = records.read([mine])
    assert len(found) == 3 and not any(m.own for m in found)


@pytest.mark.parametrize(
    "change, reason",
    [
        (dict(error="AssertionError: wrong result: largest error 0.3"), "wrong result"),
        (dict(ms=float("nan")), "no number above 0"),
        (dict(ms=-1.0), "no number above 0"),
        (dict(ms="1"), "no number above 0"),
        (dict(ms=0.1), "spread"),
        (dict(low=None), "spread"),
        (dict(max_error=float("nan")), "not checked"),
        (dict(max_error=None), "not checked"),
        (dict(ms=0.5, low=0.49, high=0.51), "contradict"),
        (dict(N=0), "impossible"),
        (dict(N=True), "impossible"),
        (dict(peer=None), "impossible"),
        (dict(peak_bytes=0), "no number above 0"),
    ],
)
def test_a_row_that_was_tampered_with_or_failed_is_not_used_and_the_reason_is_given(change, reason):
    standard, flash = both(3.0, 1.0)
    found, refused = records.read([record(standard, flash | change)])
    assert [m.row["peer"] for m in found] == ["standard"]
    assert [(r.file, r.row) for r in refused] == [("mine.json", 1)] and reason in refused[0].reason
    with pytest.raises(NotMeasured):
        speed_and_memory(found)


@pytest.mark.parametrize("lost", ["date", "command", "torch", "cpu", "flashlab"])
def test_a_record_that_does_not_say_where_it_comes_from_is_not_used(lost):
    found, refused = records.read([record(*both(3.0, 1.0), origin=ORIGIN | {lost: None})])
    assert found == [] and lost in refused[0].reason
    for origin in (None, "a laptop", ORIGIN | {"date": "yesterday"}):
        found, refused = records.read([record(*both(3.0, 1.0), origin=origin)])
        assert found == [] and len(refused) == 1


def test_an_id_changes_with_every_number_and_with_the_machine():
    made = record(row("fa2", 1.0))
    ids = {records.record_id(made, made["rows"][0])}
    ids.add(records.record_id(made, made["rows"][0] | {"ms": 1.01}))
    ids.add(records.record_id(made | {"provenance": GPU}, made["rows"][0]))
    assert len(ids) == 3 and all(re.fullmatch(r"cpu-[0-9a-f]{7}", i) for i in ids)


def test_an_exercise_counts_once_with_the_day_on_which_it_was_passed_first():
    from flashlab import progress

    with pytest.raises(NotMeasured, match="No exercise"):
        sentences.exercise(gather.exercises())
    progress.record("check", "online_softmax", passed=False, started=True, stage=2, stages=6)
    assert gather.exercises() == []
    progress.record("check", "online_softmax", passed=True, started=True, stage=6, stages=6)
    progress.record("check", "online_softmax", passed=True, started=True, stage=6, stages=6)
    (done,) = gather.exercises()
    text = sentences.exercise([done]).text
    assert "all 6 stages" in text and progress.events("check")[1]["at"][:10] in text


def test_bytes_that_differ_from_the_model_are_not_claimed():
    right = gather.TrafficCheck((("load", "q", 64, 64), ("store", "o", 32, 32)), "N = 4", ORIGIN)
    assert "(64 bytes loaded, 32 stored; N = 4" in sentences.traffic(right).text
    wrong = gather.TrafficCheck((("load", "q", 65, 64),), "N = 4", ORIGIN)
    for check in (wrong, gather.TrafficCheck(problem="no Triton here."), gather.TrafficCheck(), None):
        with pytest.raises(NotMeasured):
            sentences.traffic(check)


def test_the_kernel_run_now_moves_the_models_bytes():
    pytest.importorskip("triton")
    check = gather.traffic_check(ORIGIN, gather.CHECKED | dict(Hq=1, Nq=40))
    assert check.equal and check.bytes("load") > check.bytes("store") > 0


@pytest.mark.parametrize(
    "name, said",
    [
        ("RTX 4090", "an RTX 4090"), ("NVIDIA H200", "an NVIDIA H200"), ("Tesla T4", "a Tesla T4"),
        ("AMD EPYC CPU", "an AMD EPYC CPU"), ("Intel(R) Xeon(R)", "an Intel(R) Xeon(R)"),
        ("Apple M3", "an Apple M3"), ("x86_64 CPU", "an x86_64 CPU"), ("H100", "an H100"), ("T4", "a T4"),
        ("Quadro", "a Quadro"),
    ],
)  # fmt: skip
def test_machines_get_the_article_that_they_are_spoken_with(name, said):
    assert wording.with_article(name) == said


def test_ratios_are_printed_with_one_decimal_below_ten_and_none_above():
    assert [digits(r) for r in (1.0, 3.44, 9.94, 9.96, 18.4, 1234.5)] == [
        "1.0", "3.4", "9.9", "10", "18", "1,234",
    ]  # fmt: skip
