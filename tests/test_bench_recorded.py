"""The records in the package: all of them load, say where they come from, and give no machine away."""

import datetime
import json

import pytest

from flashlab import bench
from flashlab.bench import __main__ as command
from flashlab.bench import suites

RECORDS = bench.recorded()


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r["file"])
def test_every_record_says_where_it_comes_from(record):
    where = record["provenance"]
    for name in ("torch", "commit", "command", "gpu" if record["file"].startswith("h200_") else "cpu"):
        assert where[name], name
    assert not where["gpu"] or (where["driver"] and where["triton"])
    assert datetime.datetime.fromisoformat(where["date"]).year >= 2026
    assert record["rows"] and all(isinstance(row, dict) for row in record["rows"])


def planned(told):
    """(arguments, plan) of a stored command, by today's command line; nothing is measured."""
    words = told.split()
    assert words[:3] == ["python", "-m", "flashlab.bench"]
    args = command.parser().parse_args(words[3:])
    return args, command.SUITES[args.suite](args)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r["file"])
def test_the_command_of_a_record_is_one_that_todays_command_line_would_run(record):
    if record["suite"] in ("kernels", "decode", "tune"):
        pytest.importorskip("triton")
    args, plan = planned(record["provenance"]["command"])
    assert args.suite == record["suite"] and callable(plan["rows"])
    again, _ = planned(command.command(args))  # what it would record
    assert vars(again) == vars(args) and command.misplaced(args) is None


FAULTS = {
    "kernls": SystemExit,
    "kernels --peers fa2 sdpa-cuda": ValueError,
    "kernels --length 512 --peeers fa2": SystemExit,
    "kernels --directions forwards": ValueError,
    "memory --peers cudnn": ValueError,
    "decode --peers decode:many": ValueError,
    "decode --peers fa2": ValueError,
    "tune --directions backward": ValueError,
    "tune --dtypes float16 bfloat16": ValueError,
    "cpu --peers sdpa-cudnn": ValueError,
}


@pytest.mark.parametrize("words", FAULTS)
def test_a_command_with_an_unknown_suite_peer_or_option_is_not_one_of_them(words):
    if words.startswith(("decode", "tune")):
        pytest.importorskip("triton")
    with pytest.raises(FAULTS[words]):
        planned(f"python -m flashlab.bench {words}")


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r["file"])
def test_the_command_of_a_record_measures_what_the_record_holds(record):
    from flashlab.bench import decode, kernels, memory

    args, _ = planned(record["provenance"]["command"])
    suite, rows = record["suite"], record["rows"]
    if record.get("stopped"):
        assert record["file"] in bench.recorded.__doc__, "the docstring says what a stopped record lacks"
    sizes = ("dtype", "D", "N", "causal", "B", "H")
    if suite == "kernels":
        grid = kernels.cases(
            args.dtypes or ["float16", "bfloat16"],
            args.dims or [64, 128],
            args.lengths or (kernels.QUICK_LENGTHS if args.quick else kernels.LENGTHS),
            suites.masks(args),
        )
        asked = [(*map(c.get, sizes), d, p) for c, d, p in kernels.plan(list(grid), args.peers)]
        held = [(*map(row.get, sizes), row["direction"], row["peer"]) for row in rows]
    elif suite == "memory":
        asked = memory.cases(args.peers, args.lengths or memory.LENGTHS)
        held = [(row["peer"], row["N"]) for row in rows]
    elif suite == "decode":
        asked = [(*case, peer) for case in decode.CASES for peer in args.peers or decode.PEERS]
        held = [(*map(row.get, decode.Case._fields), row["peer"]) for row in rows]
    else:
        pytest.skip(f"what the suite {suite} measures is fixed, or found by it")
    # Without --peers a suite measures those that are installed, which may be more today.
    assert set(held) <= set(asked) and len(held) == len(set(held))
    if record.get("stopped"):
        assert held == asked[: len(held)] and len(held) < len(asked)
    elif args.peers:
        assert set(held) == set(asked)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r["file"])
def test_no_record_holds_a_path_or_a_key_that_names_a_machine(record):
    text = json.dumps(record)
    assert not [word for word in ("/home", "/tmp", "/usr", "hostname", "@") if word in text]


def test_one_suite_is_asked_for_by_name():
    kernels = bench.recorded("kernels")
    assert {"h200_fa1.json", "h200_kernels.json"} <= {r["file"] for r in kernels}
    assert {r["suite"] for r in kernels} == {"kernels"} and kernels[0]["rows"]
    assert len(RECORDS) == len(list(bench.FOLDER.glob("*.json"))) > len(kernels)


def test_a_suite_without_records_is_an_empty_list_that_says_so():
    nothing = bench.recorded("coffee")
    assert nothing == [] and not nothing and nothing[:1] == [] and list(nothing) == []
    with pytest.raises(
        IndexError, match="no measurements of the suite 'coffee' .it keeps: decode, .*kernels"
    ):
        nothing[0]
    assert "no measurements of the suite 'coffee'" in repr(nothing) and repr(RECORDS[:0]) == "[]"


def test_a_package_without_records_says_so_too(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    with pytest.raises(IndexError, match="no measurements .it keeps: none at all"):
        bench.recorded()[0]
