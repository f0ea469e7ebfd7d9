"""The suite `kernels` as far as a CPU can tell: its cases, peers, floors and clocks, and a small run."""

import ctypes
import sys
import types

import pytest
import torch

from flashlab import bench, gpus
from flashlab.bench import clocks, floors, kernels, peers
from flashlab.bench.timing import Host

H200 = gpus.get("H200")
CASE = dict(dtype="float16", D=128, N=4096, causal=False, B=4, H=16)
SMALL = dict(dtype="float32", D=16, N=32, causal=True, B=1, H=2)


class Quick(Host):
    """The CPU as a device whose cache nobody flushes."""

    def flush(self):
        pass


def run(names, cases=(SMALL,), **how):
    lines = []
    how = dict(where="cpu", device=Quick(), peak=lambda call: 5, say=lines.append) | how
    rows = list(kernels.run(cases, names, **how))
    assert lines[0] == kernels.HEAD
    return rows, lines[1:]


def test_all_cases_have_the_same_tokens_and_hidden_size():
    grid = list(kernels.cases())
    assert len(grid) == 48 and {c["B"] * c["N"] for c in grid} == {16384}
    assert {c["H"] * c["D"] for c in grid} == {2048}
    (long,) = kernels.cases(["float16"], [4096], [32768], [False])
    assert long["B"] == long["H"] == 1


def test_rows_have_the_fields_of_the_recorded_ones_and_more():
    rows, lines = run(["standard", "sdpa-math"])
    recorded = set(bench.recorded("kernels")[0]["rows"][0])
    for row in rows:
        assert recorded | {"cache", "clock_mhz", "input_sets", "peak_bytes", "floor_bytes"} <= set(row)
        assert row["cache"] == "flushed" and row["clock_mhz"] == [None, None] and row["peak_bytes"] == 5
    assert [(r["direction"], r["peer"]) for r in rows] == [
        (d, p) for d in ("forward", "backward") for p in ("standard", "sdpa-math")
    ]
    assert len(lines) == 4 and "causal standard" in lines[0]
    assert lines[0].split()[-3:-1] == kernels.rate(rows[0]["tflops"]).split()


def test_a_rate_has_its_unit():
    assert [kernels.rate(x) for x in (612.34, 1.0, 0.0356, 2e-5)] == ["612.3 T", "1.0 T", "35.6 G", "20.0 M"]


def test_a_peer_that_cannot_do_a_case_is_a_row_with_one_line_why():
    (row,), (line,) = run(["sdpa-cudnn"], directions=["forward"])
    assert row["error"].startswith("RuntimeError: ") and "\n" not in line and "ms" not in row


def test_an_unknown_peer_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="unknown peer 'fa22'. Did you mean 'fa2'"):
        kernels.plan([SMALL], ["standard", "fa22"])


def test_what_is_no_direction_and_no_size_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="unknown direction 'backwards'. Did you mean 'backward'"):
        kernels.plan([], directions=["backwards"])
    with pytest.raises(ValueError, match="expected lengths from 1 up, got 0"):
        list(kernels.cases(lengths=(0,)))


def test_floors_of_a_known_case_are_those_of_paper_and_pencil():
    found = floors.floors(CASE, "forward", 2.0, H200)
    one = 4 * 16 * 4096 * 128 * 2  # bytes of q
    assert found["floor_bytes"] == 4 * one + 4 * 16 * 4096 * 4  # q, k, v, o and a float32 each row
    assert found["floor_flops"] == 4 * 4 * 16 * 4096**2 * 128
    assert found["floor_bytes_ms"] == pytest.approx(1e3 * found["floor_bytes"] / 4.8e12)
    assert found["floor_flops_ms"] == pytest.approx(1e3 * found["floor_flops"] / 989.5e12)
    assert found["percent_of_floor"] == pytest.approx(100 * found["floor_flops_ms"] / 2.0)
    back = floors.floors(CASE, "backward", 2.0, H200)
    assert (
        back["floor_bytes"] == 8 * one + 4 * 16 * 4096 * 4
        and back["floor_flops"] == 2.5 * found["floor_flops"]
    )
    causal = floors.floors(CASE | dict(causal=True), "forward", 2.0, H200)
    assert causal["floor_flops"] == found["floor_flops"] / 2
    assert causal["floor_bytes"] == found["floor_bytes"]


def test_no_recorded_time_is_below_its_floor():
    rows = [r for record in bench.recorded("kernels") for r in record["rows"] if "ms" in r]
    percents = [floors.floors(r, r["direction"], r["ms"], H200)["percent_of_floor"] for r in rows]
    assert len(rows) > 100 and 1 < min(percents) and max(percents) < 100


def test_without_a_known_gpu_or_peak_there_are_bytes_and_flops_but_no_times():
    for case, gpu in ((CASE, None), (CASE | dict(dtype="bfloat16"), gpus.get("T4"))):
        assert set(floors.floors(case, "forward", 1.0, gpu)) == {"floor_bytes", "floor_flops"}


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA A100-PCIE-40GB", "A100-40"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", None),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GeForce RTX 3060", None),
    ],
)
def test_a_drivers_name_leads_to_the_table_or_to_nothing(driver, name):
    found = floors.known(driver)
    assert (found and found.name) == name


def module(monkeypatch, name, call):
    """Put a module with a flash_attn_func in place of one that is not installed."""
    fake = types.ModuleType(name)
    fake.flash_attn_func = call
    fake.__path__, fake.__spec__ = [], types.SimpleNamespace(name=name)
    for i in range(name.count(".") + 1):
        part = name.rsplit(".", i)[0] if i else name
        monkeypatch.setitem(sys.modules, part, fake)
    monkeypatch.setattr(peers, "found", lambda module: module == name)


def bnhd(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    o = peers.standard(*(x.transpose(1, 2) for x in (q, k, v)), causal)
    return o.transpose(1, 2).contiguous()


@pytest.mark.parametrize(
    ("name", "where", "with_lse"),
    [
        ("flash-attn", "flash_attn.flash_attn_interface", False),
        ("flash-attn-3", "flash_attn_interface", False),
        ("flash-attn-3", "flash_attn_3.flash_attn_interface", True),
        ("flash-attn-4", "flash_attn.cute", True),
    ],
)
def test_a_flash_attn_package_gets_its_own_layout_contiguous(monkeypatch, name, where, with_lse):
    shapes = []

    def call(q, k, v, **how):
        assert q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
        shapes.append(tuple(q.shape))
        o = bnhd(q, k, v, **how)
        return (o, torch.zeros(1)) if with_lse else o

    module(monkeypatch, where, call)
    assert name not in peers.absent() and name in peers.installed()
    rows, _ = run([name], [SMALL, SMALL | dict(causal=False)])
    assert [r.get("error") for r in rows] == [None] * 4
    assert set(shapes) == {(1, 32, 2, 16)}


def test_an_absent_package_is_one_sentence_each_and_is_not_tried(monkeypatch):
    monkeypatch.setattr(peers, "found", lambda module: False)
    monkeypatch.setattr(peers, "on_hopper", lambda: False)
    sentences = peers.absent()
    assert list(sentences) == ["flash-attn", "flash-attn-3", "flash-attn-4", "fa3"]
    assert sentences.pop("fa3") == "fa3 needs a Hopper GPU (H100, H200)."
    assert all(s.endswith(".") and s.startswith(f"{n} is not installed here") for n, s in sentences.items())
    assert not set(sentences) & {name for _, _, name in kernels.plan([SMALL])}
    (row, fa3), (line, _) = run(["flash-attn-4", "fa3"], directions=["forward"])
    assert row["error"] == sentences["flash-attn-4"] and line.endswith(row["error"])
    assert fa3["error"] == "fa3 needs a Hopper GPU (H100, H200)."


def test_a_package_that_does_not_import_is_one_sentence(monkeypatch):
    def broken(name):
        raise ImportError("libcudart.so.12: cannot open\nshared object file")

    monkeypatch.setattr(peers, "found", lambda module: True)
    monkeypatch.setattr(peers.importlib, "import_module", broken)
    with pytest.raises(peers.Absent, match="installed but cannot be imported: ImportError: libcudart"):
        peers.make("flash-attn")
    (row,), _ = run(["flash-attn"], directions=["forward"])
    assert "\n" not in row["error"] and not row["error"].startswith("Absent")


def test_a_missing_parent_package_is_not_found_quietly():
    assert peers.found("json.decoder") and not peers.found("no_such_package.cute")


def test_the_clock_is_none_without_a_driver(monkeypatch):
    clocks._nvml.cache_clear()
    assert clocks.sm_mhz() is None


def test_the_clock_is_what_the_drivers_library_says(monkeypatch):
    asked = []

    def clock(handle, kind, result):
        asked.append((handle, kind))
        ctypes.cast(result, ctypes.POINTER(ctypes.c_uint))[0] = 1725
        return 0

    monkeypatch.setattr(clocks, "_nvml", lambda: (types.SimpleNamespace(nvmlDeviceGetClockInfo=clock), "h"))
    assert clocks.sm_mhz() == 1725 and asked == [("h", clocks.SM)]
    failing = types.SimpleNamespace(nvmlDeviceGetClockInfo=lambda *a: 999)
    monkeypatch.setattr(clocks, "_nvml", lambda: (failing, "h"))
    assert clocks.sm_mhz() is None


@pytest.mark.gpu
def test_on_a_gpu_a_row_has_floors_clocks_and_peak_memory():
    case = dict(dtype="float16", D=64, N=1024, causal=False, B=2, H=8)
    rows = list(kernels.run([case], ["fa2", "standard", "sdpa-flash"]))
    assert not [r for r in rows if "error" in r], rows
    by = {(r["peer"], r["direction"]): r for r in rows}
    assert all(r["clock_mhz"][0] > 200 and r["cache"] == "flushed" for r in rows)
    assert by["standard", "forward"]["peak_bytes"] > 4 * by["fa2", "forward"]["peak_bytes"]
    assert by["standard", "backward"]["kept_bytes"] > 2 * by["fa2", "backward"]["kept_bytes"]
    if floors.known(torch.cuda.get_device_name()):
        assert all(0 < r["percent_of_floor"] < 130 for r in rows)
