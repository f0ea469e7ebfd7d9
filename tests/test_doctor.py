"""flashlab doctor on machines made up: each thing that is missing is named, with what to do about it."""

import subprocess
import sys

import pytest

from flashlab import cli, doctor, text
from flashlab.doctor import Facts, findings, parts
from flashlab.machine import NO_CHROMIUM, Gpu

FULL = {
    "torch": "2.13.0+cpu",
    "triton": "3.7.1",
    "numpy": "2.4.6",
    "matplotlib": "3.11.2",
    "jupyterlab": "4.6.6",
    "ipywidgets": "8.1.9",
    "anywidget": "0.11.0",
    "pytest": "9.2.0",
    "playwright": "1.65.2",
}
H200 = Gpu("NVIDIA H200", "580.95.05", (9, 0))
T4 = Gpu("Tesla T4", "580.95.05", (7, 5))
CUDA = dict(torch="2.13.0", **{name: version for name, version in FULL.items() if name != "torch"})


def machine(versions=FULL, without=(), **facts):
    """Facts of a machine that has everything, less what is named."""
    return Facts(versions={k: None if k in without else v for k, v in versions.items()}, **facts)


def about(facts, word):
    """The one finding whose text has this word."""
    found = [f for f in findings(facts) if word in f.text]
    assert len(found) == 1, [f.text for f in findings(facts)]
    return found[0]


def runs(facts):
    """The keys of the parts that run here."""
    names = {text.t(f"doctor.parts.{key}"): key for key in text.table("doctor", "en")["parts"]}
    return {names[part] for part, here, _ in parts(facts) if here}


EVERYTHING = {"numpy", "surprise", "widgets", "interpreted", "compiled", "tests", "browser_tests"}


def test_a_laptop_without_gpu_lacks_nothing_and_runs_all_but_the_compiled_kernels():
    facts = machine()
    assert [f for f in findings(facts) if f.level == "missing"] == []
    assert "interpreter" in about(facts, "No NVIDIA GPU").text
    assert runs(facts) == EVERYTHING - {"compiled"}


def test_a_machine_with_an_h200_runs_everything():
    facts = machine(CUDA, gpus=[H200], torch_cuda="13.0", cuda_available=True)
    assert about(facts, "H200").level == "ok"
    assert "580.95.05" in about(facts, "H200").text and "9.0" in about(facts, "H200").text
    assert runs(facts) == EVERYTHING


def test_an_older_pair_within_the_ranges_is_only_noted():
    versions = {**CUDA, "torch": "2.11.0+cu130", "triton": "3.6.0", "numpy": "2.3.5"}
    facts = machine(versions, gpus=[H200], torch_cuda="13.0", cuda_available=True)
    assert about(facts, "PyTorch 2.11.0").level == "note" and "2.13.0" in about(facts, "PyTorch 2.11.0").text
    assert about(facts, "Triton 3.6.0").level == "note"
    assert runs(facts) == EVERYTHING


def test_triton_3_6_with_a_new_numpy_has_no_interpreter_but_compiles():
    facts = machine({**CUDA, "triton": "3.6.0"}, gpus=[H200], torch_cuda="13.0", cuda_available=True)
    finding = about(facts, "Triton 3.6.0")
    assert finding.level == "missing" and "NumPy 2.4.6" in finding.text and "triton==3.7.1" in finding.advice
    assert runs(facts) == EVERYTHING - {"interpreted"}


def test_a_driver_too_old_is_told_and_not_taken_for_no_gpu():
    facts = machine(CUDA, gpus=[Gpu("NVIDIA A100", "535.183.01", (8, 0))], torch_cuda="13.0")
    finding = about(facts, "A100")
    assert finding.level == "missing" and "driver is too old" in finding.text and "580" in finding.advice
    assert "compiled" not in runs(facts) and "interpreted" in runs(facts)


def test_a_gpu_with_a_cpu_build_of_torch_says_how_to_get_the_other():
    finding = about(machine(gpus=[H200]), "H200")
    assert finding.level == "missing" and "CPU only" in finding.text and "Delete .venv" in finding.advice


def test_a_gpu_with_a_cpu_build_because_of_its_driver_says_driver_first():
    finding = about(machine(gpus=[Gpu("NVIDIA A100", "535.183.01", (8, 0))]), "A100")
    assert "driver 535.183.01 is too old" in finding.advice


def test_an_old_driver_is_enough_for_an_older_cuda_build():
    gpu = Gpu("NVIDIA A100", "550.54.14", (8, 0))
    facts = machine({**CUDA, "torch": "2.11.0+cu126"}, gpus=[gpu], torch_cuda="12.6", cuda_available=True)
    assert about(facts, "A100").level == "ok" and "compiled" in runs(facts)


def test_a_gpu_that_torch_cannot_use_is_told():
    finding = about(machine(CUDA, gpus=[H200], torch_cuda="13.0"), "H200")
    assert finding.level == "missing" and "CUDA_VISIBLE_DEVICES" in finding.advice


def test_a_gpu_before_sm_80_takes_pytorchs_own_attention():
    facts = machine(CUDA, gpus=[T4], torch_cuda="13.0", cuda_available=True)
    assert "PyTorch's own attention" in about(facts, "T4").advice
    assert "compiled" not in runs(facts)


@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_without_triton_on_macos_and_windows_everything_else_runs(system):
    facts = machine(system=system, without=["triton"])
    finding = about(facts, "Triton has no build")
    assert finding.level == "note" and system in finding.text and finding.advice
    assert runs(facts) == EVERYTHING - {"interpreted", "compiled"}


def test_without_triton_on_linux_the_version_to_install_is_named():
    finding = about(machine(without=["triton"]), "Triton is not")
    assert finding.level == "missing" and "triton==3.7.1" in finding.advice


def test_without_torch_the_numpy_part_still_runs():
    facts = machine(without=["torch"])
    assert about(facts, "PyTorch is not installed").level == "missing"
    assert runs(facts) == EVERYTHING - {"surprise", "interpreted", "compiled"}


def test_a_torch_that_does_not_import_is_told_with_its_error():
    facts = machine(torch_error="ImportError: libcudart.so.13: cannot open shared object file")
    assert "libcudart" in about(facts, "does not import").text
    assert "surprise" not in runs(facts)


def test_a_platform_without_wheels_is_named():
    facts = machine(
        system="Darwin",
        without=["torch", "triton"],
        platform_problem="PyTorch 2.13 has no build for Intel Macs.",
    )
    assert about(facts, "Intel Macs").level == "missing" and "NumPy" in about(facts, "Intel Macs").advice


@pytest.mark.parametrize(
    "python, level", [((3, 10, 2), "missing"), ((3, 11, 0), "ok"), ((3, 15, 0), "missing")]
)
def test_the_python_is_judged(python, level):
    assert about(machine(python=python), "Python 3.").level == level


@pytest.mark.parametrize("name", ["numpy", "matplotlib", "jupyterlab", "ipywidgets", "anywidget"])
def test_each_missing_package_is_named_with_the_command_that_brings_it(name):
    finding = about(machine(without=[name]), name)
    assert finding.level == "missing" and "make lab" in finding.advice


def test_missing_fonts_and_browser_are_notes_that_name_the_packages():
    facts = machine(cjk_font=False, browser_problem=NO_CHROMIUM)
    assert "fonts-noto-cjk" in about(facts, "Chinese").advice
    assert "chromium" in about(facts, "No browser").advice
    assert "browser_tests" not in runs(facts) and "tests" in runs(facts)


def test_whatever_is_missing_has_an_advice():
    machines = [
        machine({}),
        machine(
            {}, system="Windows", python=(3, 9, 1), gpus=[T4], cjk_font=False, browser_problem=NO_CHROMIUM
        ),
        machine({**FULL, "torch": "2.5.0", "triton": "3.12.0"}),
        machine(CUDA, gpus=[H200], torch_cuda="13.0"),
    ]
    for facts in machines:
        assert [f for f in findings(facts) if f.level == "missing" and not f.advice] == []


def test_the_report_shows_the_same_as_text_and_as_html():
    report = doctor.Report(machine(gpus=[Gpu("<b>GPU</b>", "580.01", (9, 0))]))
    page = report._repr_html_()
    assert "&lt;b&gt;GPU" in page and "<b>GPU" not in page
    for finding in report.findings:
        assert finding.text in str(report)


def test_the_report_speaks_chinese(monkeypatch):
    monkeypatch.setattr(text, "_chosen", "zh")
    assert "没有 NVIDIA GPU" in str(doctor.Report(machine()))


def test_this_machine_can_be_looked_at():
    facts = doctor.collect()
    assert facts.python == tuple(sys.version_info[:3]) and facts.version("torch") >= (2, 11)
    assert facts.version("numpy") >= (2,) and facts.torch_error is None


def test_the_command_prints_and_is_strict_on_demand(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "collect", lambda: machine(without=["anywidget"]))
    assert cli.main(["doctor"]) == 0
    assert cli.main(["doctor", "--strict"]) == 1
    assert "anywidget is not installed" in capsys.readouterr().out


def test_the_installed_command_answers():
    done = subprocess.run([sys.executable, "-m", "flashlab", "doctor"], capture_output=True, text=True)
    assert done.returncode == 0 and "Which parts of the course run here" in done.stdout
