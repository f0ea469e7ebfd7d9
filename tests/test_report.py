"""flashlab report: the page and the Markdown, what they show of whom, and the command that writes them."""

import html
import json
import re
import tomllib

import pytest
from report_cases import GPU, ORIGIN, both, record, row

import flashlab
from flashlab import bench, cli
from flashlab.bench.provenance import provenance
from flashlab.bench.report import content, curves, gather, markdown, measure, page, records, roofs, svg
from flashlab.text import FOLDER

CHECK = gather.TrafficCheck((("load", "q", 64, 64), ("store", "o", 32, 32)), "N = 4", ORIGIN)
LENGTHS = (256, 512, 1024)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """English, and no kernel in the interpreter: its own test runs it."""
    flashlab.lang("en")
    monkeypatch.setattr(gather, "traffic_check", lambda origin: CHECK)
    yield
    flashlab.lang("en")


def rows():
    """Times, peaks and kept bytes of two peers at three lengths, forward and backward."""
    found = []
    for n in LENGTHS:
        for direction, factor in (("forward", 1.0), ("backward", 2.5)):
            pair = both(n / 37 * factor, n / 91 * factor, n=n, direction=direction)
            pair[0]["peak_bytes"], pair[1]["peak_bytes"] = 16 * n * n, 1040 * n
            if direction == "backward":
                pair[0]["kept_bytes"], pair[1]["kept_bytes"] = 19 * n * n, 4112 * n
            found += pair
    return found


def roof(bandwidth=1e10, rate=1e11, origin=ORIGIN):
    what = [{"what": "copy", "bytes_per_s": bandwidth}]
    what.append({"what": "matmul", "dtype": "float32", "flop_per_s": rate})
    return record(*what, suite="roofs", origin=origin)


def built(*given):
    whole = content.page(gather.facts(list(given), provenance()), provenance())
    return whole, page.write(whole), markdown.write(whole)


def visible(text):
    """What a reader of the HTML sees in words: no style, no drawing."""
    text = re.sub(r"<(style|svg).*?</\1>", " ", text, flags=re.S)
    return html.unescape(re.sub(r"<[^>]+>", " ", text))


def numbers(text):
    return sorted(set(re.findall(r"\d[\d,.]*\d|\d", text)))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_markdown_and_html_say_the_same_numbers(language):
    flashlab.lang(language)
    _, written, text = built(record(*rows()), roof())
    plain = re.sub(r"\\(.)", r"\1", text)
    assert numbers(visible(written)) == numbers(plain)
    for r in rows():
        assert svg.number(r["ms"]) in plain and records.record_id(record(r), r) in plain


def test_the_page_needs_nothing_from_outside_and_runs_no_script():
    _, written, _ = built(record(*rows()), roof())
    assert not re.search(r"<script|<link|<img|src=|url\(|@import|https?:", written)
    assert written.count("<svg") == written.count('role="img"') >= 6
    assert all(len(label) > 30 for label in re.findall(r'role="img" aria-label="([^"]*)"', written))


def test_texts_from_a_file_cannot_become_html_or_markdown():
    bad = ORIGIN | {"cpu": "<script>alert(1)</script>", "command": "a | b `c` *d*"}
    _, written, text = built(record(*rows(), origin=bad))
    assert "<script" not in written and "\\<script>" in text and "a \\| b \\`c\\` \\*d\\*" in text


def test_recorded_figures_stand_in_a_section_of_their_own_with_machine_date_and_command():
    whole, written, _ = built(record(*rows()))
    (section,) = [s for s in whole.sections if s.look == "recorded"]
    said = " ".join(b.text for b in section.blocks if hasattr(b, "look"))
    assert "not your results" in said
    shown = {r["suite"]: r for r in bench.recorded() if f"{r['file']}: " in said}
    assert {*shown} == {"kernels", "memory"}
    for origin in (r["provenance"] for r in shown.values()):
        line = next(b.text for b in section.blocks if hasattr(b, "look") and origin["command"] in b.text)
        assert origin["gpu"] in line and origin["date"][:10] in line and origin["commit"] in line
    assert said.count("stopped before it had measured") == sum("stopped" in r for r in shown.values())
    others = written.replace(page._section(section, whole.sections.index(section) + 1), "")
    assert "H200" not in others and "h200_" not in others


def test_without_any_measurement_it_says_what_is_true_and_how_to_measure():
    whole, written, _ = built()
    assert "Nothing was measured yet" in written and "from 0 measurements" in written
    assert "agrees to the byte" in written and "Recorded on another machine" in written
    assert written.count('class="claim"') == 1  # the bytes, which were checked


def test_what_is_not_used_is_listed_with_its_reason():
    standard, flash = both(3.0, 1.0)
    _, written, _ = built(record(standard, flash | {"error": "AssertionError: wrong result"}))
    assert "It failed: AssertionError: wrong result" in written and "1 / 2" in written
    _, written, _ = built(record({"peer": "x"}, suite="decode"))
    assert "The suite decode is no part of this report" in written


def test_the_floors_of_a_gpu_are_those_of_its_data_sheet():
    case = row("fa2", 1.0, n=4096, dtype="float16")
    found = roofs.roofs(GPU, "float16", [roof()])
    assert found.source == "sheet" and (found.bandwidth, found.peak) == (1008e9, 165.2e12)
    by_bytes, by_flops = roofs.floors(case, found)
    assert by_bytes == pytest.approx((4 * 4 * 4096 * 64 * 2 + 4 * 4096 * 4) / 1008e9 * 1e3)
    assert by_flops == pytest.approx(4 * 4 * 4096**2 * 64 / 165.2e12 * 1e3)


def test_measured_roofs_count_for_their_own_machine_and_the_better_of_two_is_taken():
    found = roofs.roofs(ORIGIN, "float32", [roof(1e9, 5e9), roof(4e9, 3e9), roof(9e9, 9e9, GPU)])
    assert (found.bandwidth, found.peak, found.source) == (4e9, 5e9, "measured")
    assert roofs.roofs(ORIGIN, "float16", [roof()]) is None
    assert roofs.roofs(ORIGIN | {"threads": 8}, "float32", [roof()]) is None


def test_a_floor_that_a_time_lies_under_is_not_drawn():
    fine, _ = records.read([record(*rows())])
    group = list(curves.groups(fine, "ms").values())[0]
    drawn = curves.time_chart(group, [roof()])
    assert drawn.svg.count('class="floor"') == 4 and "floor: FLOPs" in drawn.table.head
    beaten = curves.time_chart(group, [roof(rate=1e6)])
    assert 'class="floor"' not in beaten.svg and "No floors are drawn" in beaten.alt


def test_every_point_of_a_chart_is_in_its_table_and_lies_inside_the_picture():
    fine, _ = records.read([record(*rows())])
    for metric in ("ms", "peak_bytes", "kept_bytes"):
        for group in curves.groups(fine, metric).values():
            make = curves.time_chart if metric == "ms" else curves.memory_chart
            chart = make(group, [roof()] if metric == "ms" else metric)
            assert len(chart.table.rows) == len(LENGTHS)
            for line in re.findall(r'points="([^"]*)"', chart.svg):
                for x, y in (map(float, p.split(",")) for p in line.split()):
                    assert svg.LEFT <= x <= svg.WIDTH - svg.RIGHT + 1
                    assert svg.TOP - 1 <= y <= svg.HEIGHT - svg.BOTTOM + 1


def test_a_single_length_draws_a_chart_too():
    _, written, _ = built(record(*both(3.0, 1.0, peak_bytes=4096)), roof())
    assert "nan" not in written.lower().replace("finance", "") and 'points=""' not in written


def test_no_two_peers_of_a_chart_look_alike_and_one_peer_looks_the_same_everywhere():
    for peers in (
        ["sdpa-flash", "standard", "sdpa-math", "numpy-naive", "numpy-fa2"],
        ["fa2", "fa1", "standard"],
    ):
        found = curves.looks(peers)
        assert len(set(found.values())) == len(peers)
        assert all(found[p] == curves.LOOK[p] for p in peers if p in curves.LOOK)


@pytest.mark.parametrize("value, text", [(0.1976, "0.198"), (12.34, "12.3"), (1234.5, "1,230"), (250, "250")])
def test_numbers_have_three_digits_and_no_exponent(value, text):
    assert svg.number(value) == text


def test_the_command_writes_both_files_from_results_of_the_bench(tmp_path, capsys):
    source, out, text = tmp_path / "cpu.json", tmp_path / "r.html", tmp_path / "r.md"
    source.write_text(json.dumps({"suite": "cpu", "provenance": ORIGIN, "rows": rows()}))
    command = ["report", "--from", str(source), "--out", str(out), "--markdown", str(text), "--lang", "zh"]
    assert cli.main(command) == 0
    assert '<html lang="zh-CN">' in out.read_text("utf-8") and "可写进简历的句子" in text.read_text("utf-8")
    assert "cpu.json" in text.read_text("utf-8") and str(tmp_path) not in text.read_text("utf-8")
    assert "已写入" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["no json", "[]", "{}", '{"suite": "cpu"}', '[{"suite": "cpu", "rows": 3}]'])
def test_a_file_that_holds_something_else_is_one_sentence_and_no_page(text, tmp_path, capsys):
    source, out = tmp_path / "x.json", tmp_path / "r.html"
    source.write_text(text)
    assert cli.main(["report", "--from", str(source), "--out", str(out)]) == 2
    assert "x.json" in capsys.readouterr().err and not out.exists()


def test_a_file_that_is_gone_and_a_folder_that_is_not_there_are_one_sentence_each(
    tmp_path, monkeypatch, capsys
):
    gone, there = tmp_path / "gone.json", tmp_path / "r.html"
    assert cli.main(["report", "--from", str(gone), "--out", str(there)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said == f"flashlab report: {gone} cannot be read: No such file or directory"
    monkeypatch.setattr(measure, "measure", lambda *_: pytest.fail("measured before it looked"))
    for how in (["--out", "no/r.html"], ["--out", str(there), "--markdown", "no/r.md"]):
        assert cli.main(["report", *how]) == 2
        assert "there is no folder no to write r." in capsys.readouterr().err
    assert cli.main(["report", "--out", str(tmp_path / "r.json")]) == 2
    assert "will hold the measurements" in " ".join(capsys.readouterr().err.split())


def test_measuring_says_each_step_and_what_was_measured_makes_the_same_page_again(
    tmp_path, monkeypatch, capsys
):
    def plan(words):
        if words == "roofs":
            return "flashlab report", 2, lambda say: iter(roof()["rows"])
        return "python -m flashlab.bench cpu", 2, lambda say: (say(r["peer"]) or r for r in both(3.0, 1.0))

    monkeypatch.setattr(measure, "_plan", plan)
    out, again = tmp_path / "r.html", tmp_path / "again.html"
    assert cli.main(["report", "--quick", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    for text in ("[1/3] how fast this machine copies", "[2/3] cpu", "sdpa-flash", "r.json"):
        assert text in said
    assert cli.main(["report", "--from", str(tmp_path / "r.json"), "--out", str(again)]) == 0
    assert out.read_text("utf-8") == again.read_text("utf-8") and "3.0x faster" in out.read_text("utf-8")


def test_ctrl_c_keeps_what_was_measured(monkeypatch):
    def stop(say):
        yield row("fa2", 1.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "_plan", lambda words: ("flashlab bench", 5, stop))
    said = []
    (found,) = measure.measure(say=said.append)
    assert len(found["rows"]) == 1 and said[-1] == "stopped: 1 measurements kept"


def test_the_commands_that_are_measured_are_commands_of_the_bench():
    for words in (*measure.GPU, *measure.GPU_QUICK, *measure.CPU, *measure.CPU_QUICK):
        told, total, _ = measure._plan(words)
        assert told == f"python -m flashlab.bench {words}" and total > 0


def test_both_languages_have_the_same_texts_with_the_same_values():
    def flat(table, at=""):
        for key, value in table.items():
            if isinstance(value, dict):
                yield from flat(value, f"{at}{key}.")
            else:
                yield at + key, sorted(set(re.findall(r"\{(\w+)\}", value)))

    both_tables = [
        dict(flat(tomllib.loads((FOLDER / code / "report.toml").read_text("utf-8")))) for code in ("en", "zh")
    ]
    assert both_tables[0].keys() == both_tables[1].keys()
    differing = {k for k, v in both_tables[0].items() if v != both_tables[1][k]}
    assert differing <= {f"sentence.kept_{x}" for x in ("less", "more", "same")}
