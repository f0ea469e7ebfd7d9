"""The suite `traffic`: bytes that the GPU's own counters saw, beside those that `flashlab.memory` predicts.

NVIDIA's profiler ncu runs `python -m flashlab.bench.traffic --child`, which launches each case once with a
cold L2. Counters: bytes from L2 into the SMs and back, bytes read from and written to DRAM.
"""

import argparse
import csv
import dataclasses
import io
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flashlab import memory
from flashlab.problem import Problem

METRICS = {
    "sm_read": "l1tex__m_xbar2l1tex_read_bytes.sum",
    "sm_write": "l1tex__m_l1tex2xbar_write_bytes.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
}
KERNELS = {  # what is measured -> (algorithm and direction of the model, the kernel's name)
    "fa2 forward": (("fa2", "forward"), "forward_kernel"),
    "fa2 dkdv": (("fa2", "dkdv"), "dkdv_kernel"),
    "fa2 dq": (("fa2", "dq"), "dq_kernel"),
    "fa1 forward": (("fa1", "forward"), "forward_kernel"),
}
UNITS = {"byte": 1, "Kbyte": 10**3, "Mbyte": 10**6, "Gbyte": 10**9, "": 1}
REFUSED = "this machine does not let users read the GPU's counters (ERR_NVGPUCTRPERM): use the recorded run"


def cases():
    """The measured cases, as dicts with kernel, B, Hq, Hkv, N, D, causal."""
    small = dict(B=1, Hq=16, Hkv=16, N=4096)
    found = [
        dict(kernel=kernel, **small, D=d, causal=causal)
        for kernel in KERNELS
        for d in (64, 128)
        for causal in (False, "top-left")
    ]
    long = dict(B=1, Hq=16, Hkv=16, N=16384, D=128, causal=False)
    found += [dict(long, kernel="fa2 forward"), dict(long, kernel="fa2 forward", Hkv=4)]
    return [*found, dict(long, kernel="fa2 forward", Hq=2, Hkv=2, N=65536)]


def launch_case(case, device="cuda"):
    """Launch the case's kernel once."""
    import torch

    from flashlab.kernels import fa1, fa2, fa2_backward

    torch.manual_seed(0)
    dtype = torch.float16
    q = torch.randn(case["B"], case["Hq"], case["N"], case["D"], device=device, dtype=dtype)
    k, v = (
        torch.randn(case["B"], case["Hkv"], case["N"], case["D"], device=device, dtype=dtype) for _ in "kv"
    )
    how = dict(causal=case["causal"] or None, scale=case["D"] ** -0.5)
    kind = case["kernel"]
    if kind == "fa1 forward":
        fa1.forward(q, k, v, **how)
    elif kind == "fa2 forward":
        fa2.forward(q, k, v, **how)
    else:
        # What these numbers are does not matter for the bytes, except that P stays finite.
        lse = torch.full(q.shape[:3], 20.0, device=device)
        delta = torch.zeros_like(lse)
        run = fa2_backward.backward_kv if kind == "fa2 dkdv" else fa2_backward.backward_q
        run(q, k, v, torch.randn_like(q), lse, delta, **how)


def predict(case, block_q, block_k, l2_bytes, sms, tma=True):
    """What the model says: bytes loaded and stored by the SMs, and through an L2 with room for `l2_bytes`."""
    algorithm, direction = KERNELS[case["kernel"]][0]
    sizes = {name: case[name] for name in ("B", "Hq", "Hkv", "D", "causal")}
    problem = Problem(**sizes, Nq=case["N"], dtype="float16", block_q=block_q, block_k=block_k)
    sm = memory.traffic(problem, algorithm, direction, tma=tma)
    # two programs on an SM: what the shipped configurations aim at
    level = dict(level="hbm", l2_bytes=l2_bytes, in_flight=2 * sms)
    hbm = memory.traffic(problem, algorithm, direction, tma=tma, **level)
    return {
        "sm_read": sm.bytes("load"),
        "sm_write": sm.bytes("store"),
        "dram_read": hbm.bytes("load"),
        "dram_write": hbm.bytes("store"),
        "compulsory_read": sum(flow.once for flow in sm.flows if flow.op == "load"),
    }


def compare(case, counted, predicted):
    """One result: counters, predictions, their ratios, and what should hold of them."""
    ratio = {
        name: counted[name] / predicted[name]
        for name in METRICS
        if counted.get(name) is not None and predicted[name]
    }
    kv = 2 * case["N"] * case["D"] * 2
    row = dict(case, counted=counted, predicted=predicted, ratio=ratio)
    row["sm_read_ok"] = abs(ratio["sm_read"] - 1) <= 0.02 if "sm_read" in ratio else None
    if counted.get("dram_read") is not None:
        row["above_floor"] = counted["dram_read"] >= 0.999 * predicted["compulsory_read"]
        row["dram_read_ok"] = abs(ratio["dram_read"] - 1) <= 0.15
        row["dram_goal"] = kv <= predicted.get("l2_bytes", 0) / 4
    return row


def parse(text):
    """[(kernel name, {metric: value or None}), ...] of ncu's CSV, one line a metric or one line a kernel."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.lstrip().startswith('"ID"')), None)
    if start is None:
        return []
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    found = {}
    if rows and "Metric Name" in rows[0]:
        for row in rows:
            if row["ID"] and row["ID"].isdigit():
                _, values = found.setdefault(int(row["ID"]), (row["Kernel Name"], {}))
                values[row["Metric Name"]] = number(row["Metric Value"], row.get("Metric Unit") or "")
    elif rows:
        units = rows[0]  # the line below the header
        for row in rows[1:]:
            values = {name: number(row[name], units[name]) for name in row if name and "__" in name}
            found[int(row["ID"])] = row["Kernel Name"], values
    return [found[i] for i in sorted(found)]


def number(text, unit):
    """A metric's value in bytes; None where the profiler has none or a unit is not one of bytes."""
    text = (text or "").replace(",", "")
    if not re.fullmatch(r"[\d.]+(e[+-]?\d+)?", text) or unit not in UNITS:
        return None
    return float(text) * UNITS[unit]


def find_ncu():
    """The path of ncu, or None."""
    found = shutil.which("ncu")
    known = sorted(Path("/usr/local").glob("cuda*/bin/ncu")) + sorted(Path("/opt/nvidia").glob("*/*/ncu"))
    return found or next((str(path) for path in known if path.exists()), None)


def profile(ncu, metrics, limit_s=300):
    """Run the child under ncu: (text of its CSV, metrics that ncu does not know). Raises RuntimeError."""
    metrics, unknown = dict(metrics), []
    while metrics:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "ncu.csv")
            names = "|".join(sorted({name for _, name in KERNELS.values()}))
            command = [ncu, "--metrics", ",".join(metrics.values()), "--clock-control", "none", "--csv"]
            command += [
                "--print-units",
                "base",
                "--kernel-name",
                f"regex:^({names})$",
                "--log-file",
                str(log),
            ]
            command += [sys.executable, "-m", "flashlab.bench.traffic", "--child"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
            text = log.read_text() if log.exists() else ""
        said = text + done.stdout + done.stderr
        if "ERR_NVGPUCTRPERM" in said:
            raise RuntimeError(REFUSED)
        missing = [
            key for key, name in metrics.items() if re.search(rf"find metric.*{re.escape(name)}", said)
        ]
        if not missing:
            if not parse(text):
                raise RuntimeError(
                    f"ncu measured nothing (exit status {done.returncode}): {said.strip()[-600:]}"
                )
            return text, unknown
        for key in missing:
            unknown.append(metrics.pop(key))
    raise RuntimeError("ncu knows none of the counters: " + ", ".join(unknown))


def compile_first(count, limit_s=240):
    """Compile every case's kernel, several at once, into Triton's cache on disk: ncu need not wait for it."""

    def one(index):
        command = [sys.executable, "-m", "flashlab.bench.traffic", "--child", "--case", str(index)]
        return subprocess.run(command, capture_output=True, text=True, timeout=limit_s)

    with ThreadPoolExecutor(8) as pool:
        for done in pool.map(one, range(count)):
            if done.returncode:
                raise RuntimeError("a case failed without the profiler: " + done.stderr.strip()[-600:])


def run(say=print):
    """Profile every case; yields one dict a case, or one with "error" that says why there is none."""
    from flashlab.bench.device import this_gpu

    ncu = find_ncu()
    if ncu is None:
        say("NVIDIA Nsight Compute (ncu) was not found: the recorded run stands in")
        yield dict(error="ncu not found")
        return
    which, (gpu, note) = cases(), this_gpu()
    if note:
        say(note)
    try:
        compile_first(len(which))
        text, unknown = profile(ncu, METRICS)
    except (RuntimeError, OSError, subprocess.SubprocessError) as problem:
        say(str(problem))
        yield dict(error=str(problem))
        return
    for name in unknown:
        say(f"this ncu does not know {name}")
        yield dict(error=f"unknown metric {name}")
    measured = parse(text)
    if [name for name, _ in measured] != [KERNELS[case["kernel"]][1] for case in which]:
        say(f"expected {len(which)} kernels, ncu saw: {[name for name, _ in measured]}")
        yield dict(error="kernels do not match the cases", csv=text)
        return
    for case, (_, values) in zip(which, measured, strict=True):
        counted = {key: values.get(name) for key, name in METRICS.items()}
        row = beside_model(case, counted, config_of(case), gpu)
        say(line(row))
        yield row | (dict(gpu_note=note) if note else {})


def beside_model(case, counted, config, gpu):
    """One result: what was counted with the launch configuration `config`, beside what today's model says."""
    sizes = config.block_q, config.block_k, gpu.l2_shared, gpu.sms, config.tma
    predicted = predict(case, *sizes) | dict(l2_bytes=gpu.l2_bytes)
    return compare(case, counted, predicted) | dict(config=list(config))


def again(record):
    """A kept record with the same counters beside the predictions of today's model."""
    from flashlab.bench.floors import known
    from flashlab.kernels.launch import Config

    gpu, rows = known(record["provenance"]["gpu"]), []
    for row in record["rows"]:
        case = {name: value for name, value in row.items() if name in cases()[0]}
        seen = dataclasses.replace(gpu, l2_bytes=row["predicted"]["l2_bytes"])
        rows.append(beside_model(case, row["counted"], Config(*row["config"]), seen))
    return record | dict(rows=rows)


def config_of(case):
    """The Config that the launcher picks for a case on this GPU."""
    import torch

    from flashlab.kernels.launch import config_for, forward_config

    q = torch.empty(1, 1, 1, case["D"], device="cuda", dtype=torch.float16)
    if case["kernel"] == "fa2 forward":
        return forward_config(q, case["N"], simple=not case["causal"])
    return config_for(q, "fa1" if case["kernel"] == "fa1 forward" else case["kernel"].split()[1])


def line(row):
    """A line of progress, and one below it for each counter."""
    mask = "causal" if row["causal"] else "full"
    heads = f"H {row['Hq']}/{row['Hkv']}"
    lines = [f"{row['kernel']:11} {heads:7} N {row['N']:5} D {row['D']:3} {mask:6}"]
    for name in METRICS:
        if row["counted"].get(name) is not None:
            ratio = f" ({row['ratio'][name]:.3f} of the model)" if name in row["ratio"] else ""
            lines.append(f"    {name} {row['counted'][name] / 1e6:,.1f} MB{ratio}")
    return "\n".join(lines)


def main(argv=None):
    """The child: launch the cases, in order."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--child", action="store_true", required=True)
    p.add_argument("--case", type=int)
    args = p.parse_args(argv)
    import torch

    for case in cases() if args.case is None else cases()[args.case : args.case + 1]:
        launch_case(case)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
