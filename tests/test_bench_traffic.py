"""The comparison with the GPU's counters, as far as it needs no GPU: what the profiler says or refuses."""

import subprocess

import pytest

from flashlab.bench import recorded, traffic

LONG = """==PROF== Connected to process 7
==PROF== Profiling "forward_kernel": 0%....50%....100% - 2 passes
"ID","Process ID","Kernel Name","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","forward_kernel","0","9.0","Command line profiler metrics","dram__bytes_read.sum","byte","25,165,824"
"0","7","forward_kernel","0","9.0","Command line profiler metrics","l1tex__m_xbar2l1tex_read_bytes.sum","Mbyte","1,082.13"
"0","7","forward_kernel","0","9.0","Command line profiler metrics","l1tex__m_l1tex2xbar_write_bytes.sum","","n/a"
"1","7","dq_kernel","0","9.0","Command line profiler metrics","dram__bytes_read.sum","byte","64"
"""  # noqa: E501
WIDE = """"ID","Kernel Name","dram__bytes_read.sum","sm__cycles_elapsed.max"
"","","byte","cycle"
"0","forward_kernel","25,165,824","1,000"
"1","dq_kernel","64","7"
"""
CASE = traffic.cases()[0]


def test_one_line_a_metric_is_read_by_kernel_and_unit():
    assert traffic.parse(LONG) == [
        (
            "forward_kernel",
            {
                "dram__bytes_read.sum": 25165824.0,
                "l1tex__m_xbar2l1tex_read_bytes.sum": 1082130000.0,
                "l1tex__m_l1tex2xbar_write_bytes.sum": None,
            },
        ),
        ("dq_kernel", {"dram__bytes_read.sum": 64.0}),
    ]


def test_one_line_a_kernel_is_read_too_and_cycles_are_no_bytes():
    assert traffic.parse(WIDE) == [
        ("forward_kernel", {"dram__bytes_read.sum": 25165824.0, "sm__cycles_elapsed.max": None}),
        ("dq_kernel", {"dram__bytes_read.sum": 64.0, "sm__cycles_elapsed.max": None}),
    ]
    assert traffic.parse("==ERROR== nothing") == [] == traffic.parse("")


def test_a_counter_is_compared_with_what_the_model_says():
    predicted = traffic.predict(CASE, 64, 128, 60 * 2**20, 132)
    assert predicted["sm_read"] == 16 * 64 * (64 + 2 * 4096) * 64 * 2  # 64 query blocks read all of K and V
    counted = dict(sm_read=predicted["sm_read"] * 1.01, dram_read=25_165_824.0, dram_write=None)
    row = traffic.compare(CASE, counted, predicted | {"l2_bytes": 60 * 2**20})
    assert row["ratio"] == {"sm_read": pytest.approx(1.01), "dram_read": 1.0}
    assert row["sm_read_ok"] and row["above_floor"] and row["dram_read_ok"] and row["dram_goal"]
    off = traffic.compare(
        CASE, counted | {"sm_read": predicted["sm_read"] * 1.03, "dram_read": 2e7}, predicted
    )
    assert not off["sm_read_ok"] and not off["above_floor"] and not off["dram_read_ok"]
    assert "sm_read 1,093.0 MB (1.010 of the model)" in traffic.line(row)
    assert all(len(line) < 80 for line in traffic.line(row).split("\n"))


def test_fa1_is_compared_only_where_its_output_does_not_fit_into_l1():
    assert all(c["N"] * c["D"] * 4 >= 2**20 for c in traffic.cases() if c["kernel"] == "fa1 forward")
    assert {c["kernel"] for c in traffic.cases()} == set(traffic.KERNELS)


@pytest.mark.parametrize("kernel", traffic.KERNELS)
def test_every_kernel_is_launched_once_for_a_case(kernel):
    pytest.importorskip("triton")
    from flashlab.interpreter import record

    case = dict(kernel=kernel, B=1, Hq=2, Hkv=1, N=64, D=16, causal="top-left")
    trace = record(lambda: traffic.launch_case(case, "cpu"))
    predicted = traffic.predict(case, 64, 64, 60 * 2**20, 132, tma=False)
    assert trace.bytes("load") == predicted["sm_read"] and trace.bytes("store") == predicted["sm_write"]


@pytest.mark.parametrize("tma", [False, True])
def test_a_descriptor_loads_whole_key_blocks_on_the_diagonal_as_predicted(tma):
    pytest.importorskip("triton")
    import torch

    from flashlab.interpreter import record
    from flashlab.kernels import fa2
    from flashlab.kernels.launch import Config

    q = torch.randn(1, 2, 48, 16, dtype=torch.float16)
    config = Config(16, 32, tma=tma)
    trace = record(lambda: fa2.forward(q, q, q, causal="top-left", scale=0.2, config=config))
    case = dict(kernel="fa2 forward", B=1, Hq=2, Hkv=2, N=48, D=16, causal="top-left")
    assert trace.bytes("load") == traffic.predict(case, 16, 32, 10**8, 132, tma)["sm_read"]
    keys = 32 + 32 + 48 if tma else 16 + 32 + 48  # by the three query blocks
    assert trace.bytes("load", "v") == 2 * keys * 16 * 2


@pytest.mark.parametrize("record", recorded("traffic"), ids=lambda r: r["file"])
def test_kept_counters_stand_beside_what_todays_model_says(record):
    """Where the model has changed: json.dumps of `traffic.again(record)` is what the file should hold."""
    pytest.importorskip("triton")
    for row, today in zip(record["rows"], traffic.again(record)["rows"], strict=True):
        assert row == today
        assert row["sm_read_ok"] and row["above_floor"]
    far = [row for row in record["rows"] if row["dram_goal"] and not row["dram_read_ok"]]
    assert [(row["kernel"], row["D"], row["causal"]) for row in far] == [("fa1 forward", 128, False)]
    assert far[0]["ratio"]["dram_read"] == pytest.approx(1.155, abs=0.001)  # 51 MB that do not stay in L2


def run(monkeypatch, says, code=0):
    """Let ncu write `says`, one text for each attempt; returns the list of its commands."""
    commands = []

    def ncu(command, **how):
        commands.append(command)
        log = command[command.index("--log-file") + 1]
        with open(log, "w") as file:
            file.write(says[min(len(commands), len(says)) - 1])
        return subprocess.CompletedProcess(command, code, "", "")

    monkeypatch.setattr(subprocess, "run", ncu)
    return commands


def test_a_counter_that_this_profiler_does_not_know_is_left_out_and_named(monkeypatch):
    commands = run(monkeypatch, ["==ERROR== Failed to find metric dram__bytes_write.sum", LONG])
    text, unknown = traffic.profile("ncu", traffic.METRICS)
    assert text == LONG and unknown == ["dram__bytes_write.sum"]
    assert "dram__bytes_write.sum" in " ".join(commands[0]) and "dram__bytes_write" not in " ".join(
        commands[1]
    )


def test_a_machine_that_refuses_counters_is_told_apart_from_one_where_nothing_ran(monkeypatch):
    run(monkeypatch, ["==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"])
    with pytest.raises(RuntimeError, match="does not let users read the GPU's counters"):
        traffic.profile("ncu", traffic.METRICS)
    run(monkeypatch, ["==ERROR== The application crashed"], code=1)
    with pytest.raises(RuntimeError, match="ncu measured nothing .exit status 1.: .*crashed"):
        traffic.profile("ncu", traffic.METRICS)
