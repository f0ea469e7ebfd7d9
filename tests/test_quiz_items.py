"""Items are drawn with a seed and marked, slips are recognised and told."""

import pytest
import quiz_cases

from flashlab.quiz import bank_loader, items


@pytest.fixture
def bank(tmp_path):
    """id -> Item, English; with the prefix "zh:" Chinese."""
    quiz_cases.write(tmp_path)
    found = {}
    for lang, before in (("en", ""), ("zh", "zh:")):
        (question,) = bank_loader.load(lang, tmp_path)
        found.update({before + i.id.removeprefix("A06-"): i for i in question.items})
    return found


def fixed(item, **draws):
    return items.task_of(item, draws)


def test_the_same_seed_draws_the_same_numbers_and_another_one_others(bank):
    asks = [items.draw(bank["n1"], seed).ask for seed in range(20)]
    assert asks == [items.draw(bank["n1"], seed).ask for seed in range(20)] and len(set(asks)) > 2


def test_the_text_holds_the_numbers_drawn_and_those_computed_from_them(bank):
    assert fixed(bank["n1"], B=3, H=16, dtype="fp16").ask == "B = 3, H = 16, 2 bytes each. How large?"


@pytest.mark.parametrize(
    "typed, right, says",
    [
        ("1.5 GiB", True, ""),
        ("1.61 GB", True, ""),
        ("1610612736", True, ""),
        ("3*16*2*2^24 bytes", True, ""),
        ("96 MiB", False, "Times the heads."),
        ("768 MiB", False, "number of entries"),
        ("1.5 GB", False, "1 GiB = 2^30"),
        ("1.5 MiB", False, "factor of 1,024"),
        ("7 GiB", False, ""),
        ("much", None, "8 GiB"),
        ("", None, "8 GiB"),
        ("8 tokens", None, "8 GiB"),
    ],
)
def test_a_number_is_marked_and_a_slip_is_named(bank, typed, right, says):
    result = items.mark(fixed(bank["n1"], B=3, H=16, dtype="fp16"), typed)
    assert result.right is right and says in result.message and (says or not result.message)
    assert right is None or result.expected == "1.5 GiB (1,610,612,736 bytes)"


def test_a_tolerance_of_nought_takes_the_exact_number_only(bank):
    task = fixed(bank["p1"], N=300)
    assert items.mark(task, "5").right and not items.mark(task, "5.01").right
    assert items.mark(task, "4").message == "Round up." and items.mark(task, "4").slip == 0


def test_a_predicted_cell_runs(bank):
    assert items.outcome(fixed(bank["p1"], N=300)) == 5
    assert items.outcome(items.draw(bank["c1"])) is None


def test_a_choice_is_a_letter_a_number_or_a_position_as_shown(bank):
    task = items.draw(bank["c1"], 5)
    at = task.shown.index("fewer bytes per entry")
    for response in (at, str(at + 1), "abc"[at], "ABC"[at] + ")"):
        assert items.mark(task, response).right
    wrong = items.mark(task, (at + 1) % 3)
    assert wrong.right is False and len(wrong.explained) == 3 and all(text for _, text, _ in wrong.explained)
    assert items.mark(task, "z").right is None and items.mark(task, "").right is None


def test_options_come_in_another_order_with_another_seed(bank):
    assert len({items.draw(bank["c1"], seed).shown for seed in range(20)}) > 2


def test_steps_are_never_shown_in_the_right_order(bank):
    assert all(items.draw(bank["o1"], s).shown != bank["o1"].steps for s in range(100))


def test_an_order_is_right_with_the_marked_steps_and_says_which_step_is_wrong_first(bank):
    task = items.draw(bank["o1"], 1)
    order, gone = items.solution(task)
    spelled = " ".join(str(n + 1) for n in order) + " | " + " ".join(str(n + 1) for n in gone)
    assert items.mark(task, (order, gone)).right and items.mark(task, spelled).right
    assert "marked steps" in items.mark(task, (order, [])).message
    swapped = [order[0], order[2], order[1], order[3]]
    assert items.mark(task, (swapped, gone)).message == "Step 2 should be: multiply."
    assert items.mark(task, "1 1 2 3").right is None and items.mark(task, "x").right is None


def test_the_wrong_line_is_found_by_its_number(bank):
    task = items.draw(bank["s1"])
    assert items.mark(task, "2").right and items.mark(task, 2).right
    assert items.mark(task, "1").message == "The heads are missing." and items.mark(task, "9").right is None


def test_everything_is_said_in_chinese_too(bank):
    task = fixed(bank["zh:n1"], B=3, H=16, dtype="fp16")
    assert "每个 2 字节" in task.ask and items.mark(task, "1.5 GiB").expected == "1.5 GiB（1610612736 字节）"
    assert items.mark(task, "96 MiB").message == "还要乘头数。" and "读不懂" in items.mark(task, "?").message


def test_every_item_is_solved_by_its_own_answer_with_fifty_seeds(bank):
    for item in bank.values():
        for seed in range(50):
            task = items.draw(item, seed)
            assert items.mark(task, items.solution(task)).right
