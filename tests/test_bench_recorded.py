"""The records in the package: all of them load, say where they come from, and give no machine away."""

import datetime
import json

import pytest

from flashlab import bench
from flashlab.bench import __main__ as command

RECORDS = bench.recorded()


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r["file"])
def test_every_record_says_where_it_comes_from(record):
    where = record["provenance"]
    for name in ("torch", "commit", "command", "gpu" if record["file"].startswith("h200_") else "cpu"):
        assert where[name], name
    assert not where["gpu"] or (where["driver"] and where["triton"])
    assert datetime.datetime.fromisoformat(where["date"]).year >= 2026
    assert record["rows"] and all(isinstance(row, dict) for row in record["rows"])


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r["file"])
def test_the_command_of_a_record_is_one_that_the_command_line_understands(record):
    words = record["provenance"]["command"].split()
    assert words[:3] == ["python", "-m", "flashlab.bench"]
    assert command.parser().parse_args(words[3:]).suite == record["suite"]


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
