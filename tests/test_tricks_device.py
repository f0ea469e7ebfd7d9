"""The simulated device behaves as a GPU does where a benchmark can be fooled."""

from types import SimpleNamespace

import numpy as np
import pytest

from flashlab import bench
from flashlab.bench import peers
from flashlab.bench.tricks import honest, model
from flashlab.bench.tricks.device import KERNELS, Simulated
from flashlab.bench.tricks.lies import DECODE, LONG


@pytest.fixture
def device():
    return Simulated()


def launch(device, kernel="sdpa-flash", problem=LONG, inputs=None):
    """(milliseconds on the host, on the device, the result) of one call."""
    inputs = inputs or honest.inputs(device, problem, 0)
    device.delay(0.1)  # work ahead in the queue, so that the launch is not what the device waits for
    before, start = device.host(), device.record()
    o = device.attention(kernel)(*inputs, problem.causal)
    host, end = device.host() - before, device.record()
    device.synchronize()
    return host * 1e3, device.elapsed(start, end), o


def test_a_launch_returns_long_before_the_kernel_ends(device):
    launch(device)
    host, on_device, _ = launch(device)
    assert host < 0.05 < 0.5 < on_device


def test_synchronize_waits_for_the_queue(device):
    inputs = honest.inputs(device, LONG, 0)
    launch(device, inputs=inputs)
    before = device.host()
    for _ in range(10):
        device.attention()(*inputs, True)
    queued = device.host() - before
    device.synchronize()
    assert device.host() - before > 10 * queued


def test_the_first_call_of_a_kernel_and_of_a_shape_keeps_the_host(device):
    first, again, other = (launch(device, problem=p)[0] for p in (LONG, LONG, DECODE))
    assert first == pytest.approx(450, rel=0.01) and again < 1
    assert other == pytest.approx(150, rel=0.01)


def test_l2_remembers_what_fits_until_it_is_flushed(device):
    inputs = honest.inputs(device, DECODE, 0)
    launch(device, problem=DECODE, inputs=inputs)
    warm = launch(device, problem=DECODE, inputs=inputs)[1]
    device.flush()
    cold = launch(device, problem=DECODE, inputs=inputs)[1]
    assert cold > 1.3 * warm


def test_the_clock_falls_under_work_and_recovers_when_idle(device):
    assert device.clock_mhz() == 1980
    device.heat(5)
    assert device.clock_mhz() == pytest.approx(device.model.steady_mhz, abs=1)
    device.pause(5)
    assert device.clock_mhz() == pytest.approx(1980, abs=1)


def test_zeros_leave_the_clock_alone(device):
    zero = [device.zeros(x.shape) for x in honest.inputs(device, LONG, 0)]
    device.soak(lambda: device.attention()(*zero, True))
    assert device.clock_mhz() == pytest.approx(1980, abs=1)


def test_at_the_steady_clock_a_kernel_takes_what_was_recorded_on_the_h200(device):
    rows = bench.recorded("kernels")
    want = dict(peer="sdpa-flash", N=4096, D=128, causal=True, direction="forward", dtype="float16")
    (row,) = (r for record in rows for r in record["rows"] if want.items() <= r.items())
    assert model.compute_ms(model.h200(), "sdpa-flash", LONG) == pytest.approx(row["ms"], rel=0.02)


def test_parameters_called_recorded_are_those_of_the_records():
    h200 = model.h200()
    (host,) = bench.recorded("host")
    assert h200.launch_us in [row["us"] for row in host["rows"]]
    assert 4.0e12 < h200.bandwidth < h200.gpu.hbm_bandwidth
    assert 1000 < h200.steady_mhz < 0.93 * h200.boost_mhz <= 0.93 * 2000  # work that lasts slows the chip
    assert 0 < h200.noise < 0.05


def test_another_gpus_records_and_the_clock_of_an_idle_start_change_nothing(monkeypatch):
    def recorded(suite):
        other = [
            {**r, "provenance": {**r["provenance"], "gpu": "NVIDIA L4"}, "rows": []} for r in real(suite)
        ]
        return [*other, *real(suite)]

    real, before = bench.recorded, model.h200.__wrapped__()
    monkeypatch.setattr(bench, "recorded", recorded)
    assert model.h200.__wrapped__() == before
    idle = {"provenance": {"sm_clock": "345 MHz"}}
    read = [(512, [345, 1600]), (4096, [1980, 1700])] + [(8192, [1690, 1980 - 10 * i]) for i in range(20)]
    rows = [{"N": n, "clock_mhz": clocks} for n, clocks in read]
    unsaid = [{}, {"N": 16384, "clock_mhz": [None, None]}]
    assert model.steady_mhz([idle | {"rows": [*rows, *unsaid]}]) == 1810
    assert model.steady_mhz([idle | {"rows": [{}]}]) == 345


def test_a_real_gpu_is_the_tables_only_if_its_whole_name_is():
    from flashlab.bench.tricks.cuda import Cuda

    device = object.__new__(Cuda)
    for name, gpu in (("NVIDIA H200", "H200"), ("NVIDIA GeForce RTX 4090 Laptop GPU", None)):
        device.cuda = SimpleNamespace(get_device_name=lambda name=name: name)
        assert getattr(device.gpu(), "name", None) == gpu


def test_the_names_of_kernels_are_those_of_the_peers():
    assert {*KERNELS} - {"skips-half"} <= {*peers.all_peers()}


def test_the_same_seed_gives_the_same_times_and_another_seed_others():
    times = [[launch(d)[1] for _ in range(3)] for d in (Simulated(1), Simulated(1).fresh(), Simulated(2))]
    assert times[0] == times[1] != times[2]


@pytest.mark.parametrize("kernel", KERNELS)
def test_only_the_wrong_kernel_computes_something_else(device, kernel):
    inputs = honest.inputs(device, LONG, 0)
    *_, o = launch(device, kernel, inputs=inputs)
    assert (device.error(o, *inputs, True) > 0.01) == (kernel == "skips-half")


def test_a_result_belongs_to_the_inputs_at_its_launch(device):
    inputs = honest.inputs(device, LONG, 0)
    *_, o = launch(device, inputs=inputs)
    device.renew(inputs[0], seed=7)
    assert device.error(o, *inputs, True) > 0.01
    device.poison(o)
    assert np.isnan(o.values()).all()


def test_an_unknown_kernel_is_refused_with_the_closest_name(device):
    with pytest.raises(ValueError, match="Did you mean 'sdpa-flash'"):
        device.attention("sdpa-flesh")


def test_the_cuda_device_has_all_kernels_where_the_cpu_plays_torch_cuda(monkeypatch):
    fake = pytest.importorskip("fake_cuda")
    from flashlab.bench import timing
    from flashlab.bench.tricks import cuda
    from flashlab.problem import Problem

    monkeypatch.setattr(timing.Cuda.__init__, "__defaults__", (100,))
    monkeypatch.setattr(cuda.Cuda, "heat", lambda self, seconds: None)
    one_token = Problem(B=1, Hq=4, Hkv=2, Nq=1, Nk=32, D=16, dtype="float16")
    square = Problem(B=1, Hq=2, Nq=32, D=16, causal=True, dtype="float16")
    with fake.fake_cuda(monkeypatch):
        device = cuda.Cuda()
        assert device.gpu().name == "H200"
        for kernel in (None, "sdpa-flash", "sdpa-math", "standard", "skips-half"):
            for problem in (one_token, square):
                inputs = honest.inputs(device, problem, 0)
                o = device.attention(kernel)(*inputs, problem.causal)
                error = device.error(o, *inputs, problem.causal)
                assert o.shape == inputs[0].shape and (error > device.tolerance) == (kernel == "skips-half")
        assert ("sdpa-math", "float32") in device.log
