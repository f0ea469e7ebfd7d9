"""The lint finds each way in which a bank can be bad, and nothing in a good one."""

import pytest
import quiz_cases

from flashlab.quiz import lint, model

ALLOWED = 'allowed = ["batch", "query", "cache", "logits", "token"]\n'


def problems(folder, *only, **replaced):
    quiz_cases.write(folder, claims=model.CLAIM_IDS, **replaced)
    (folder / "glossary.toml").write_text(ALLOWED, encoding="utf-8")
    return lint.lint(folder, only)


def test_a_good_bank_has_no_problems_and_what_is_not_written_is_pending(tmp_path):
    report = problems(tmp_path)
    assert report.problems == []
    assert report.pending[0].startswith("69 of 70 questions not written: A01 A02")


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("four thousand tokens", "a few tokens", ""),
        ("In fp16 that makes {all:GiB} for", "It is big for", "en: does not tick must 'number'"),
        ("大小随长度的平方增长", "越长越大", "spoken zh: does not tick must 'formula'"),
        ("thirty-two heads", "thirty-two heads, " + "and so on " * 60, "words, expected 75 to 160"),
        ("一层就是 {all:GiB}", "一层就是 {all:GiB}，" + "还有别的，" * 40, "characters, expected 120 to 280"),
        ("注意力矩阵有多大？", "注意力 matrix 有多大？", "A06 prompt: English in the Chinese text"),
        ('"expect / H"', '"expect * 1.03"', "are too close at {'B': 3"),
        ('"expect / H"', '"expect / 2"', "are too close"),
        ('"N // 64"', '"-(-N // 64)"', "are too close"),
        ('anchor = "03_C#C01"', 'anchor = "03_C#Q99"', "lesson 03_C does not name Q99"),
        ('anchor = "03_C#C01"', 'anchor = "lesson C"', "should look like"),
        ('id = "A06-b"', 'id = "B06-b"', "card 'B06-b': ids begin with A06-"),
        ('"Which heads count?"', '"' + "very " * 25 + '"', "too long in en"),
        ('"看哪种头数？"', '"' + "很" * 31 + '"', "too long in zh"),
        ('when = "always"', 'when = "missed:number"', "no follow-up is for always"),
        ('level = "must"', 'level = "bonus"', "no key point is a must"),
        ('unit = "blocks"', 'unit = "blobs"', "unit 'blobs' has no name"),
        ("B = {B}, H", "B = {Q}, H", "A06-n1 en: {Q} is no value here"),
        ('expect = "tiles(N, 64)"', 'expect = "tiles(M, 64)"', "cannot compute 'tiles(M, 64)'"),
        ('[["gqa"], ["shrinks", "smaller"]]', '[["four thousand"]]', "'gqa' are in the spoken answer"),
        ('[["gqa"], ["变小", "更小"]]', '[["gqa"], ["没了"]]', "'gqa' is not heard in its own"),
        ('unticks = ["formula"]', 'unticks = ["formulas"]', "closest: formula"),
        ('terms.zh = [["gqa"], ["变小", "更小"]]', "", "'zh' is missing"),
        ("How large is the attention matrix?", "Layer, batch, head, N² GiB?", "the prompt alone ticks"),
    ],
)  # fmt: skip
def test_each_rule_bites(tmp_path, old, new, says):
    report = problems(tmp_path, **{old: new})
    assert any(says in line for line in report.problems) if says else report.problems == [], report


def test_anchors_and_exercises_that_are_not_there_yet_are_pending(tmp_path):
    report = problems(tmp_path, **{"03_C#C01": "08_H#A06", '"online_softmax"': '"not_yet"'})
    assert "A06: lesson 08_H not written (anchor 08_H#A06)" in report.pending
    assert "A06: exercises not there yet: not_yet" in report.pending and report.problems == []


def test_missing_claims_fail(tmp_path):
    report = lint.lint(quiz_cases.write(tmp_path))
    assert any("45 of 46 claims are missing: K01" in line for line in report.problems)


def test_typed_numbers_are_noted(tmp_path):
    report = problems(tmp_path, **{'"**B · H · N²** times': '"8 GiB and 3.35 TB/s: **B · H · N²** times'})
    assert report.notes == ["A06 answer: typed numbers; can flashlab compute them? 8 GiB, 3.35 TB/s"]


def test_a_predicted_cell_or_a_check_that_gives_something_else_is_found(tmp_path):
    quiz_cases.write(tmp_path, **{"tiles(N, 64) + 0": "tiles(N, 64) + 1"})
    claims = tmp_path / "claims.toml"
    claims.write_text(claims.read_text().replace("print(16)", "print(17)"), encoding="utf-8")
    found = lint.lint(tmp_path, run=True).problems
    assert any("A06-p1 en: the cell gives" in line for line in found)
    assert "K15 check printed '17', not '16'" in found


def test_only_what_is_asked_for_is_looked_at(tmp_path):
    assert problems(tmp_path, "C", **{'"expect / H"': '"expect / 2"'}).problems == []
    assert problems(tmp_path, "A06", **{'"expect / H"': '"expect / 2"'}).problems


def test_the_command_prints_the_report_and_fails_on_problems(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lint.bank_loader, "FOLDER", quiz_cases.write(tmp_path))
    assert lint.main([]) == 1 and "PENDING (1)" in capsys.readouterr().out
