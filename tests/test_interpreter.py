"""The interpreter runs any kernel, finds what would go wrong on a GPU, and leaves Triton as it was."""

import ctypes
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

pytest.importorskip("triton")
import torch
import triton
import triton.language as tl

from flashlab import interpreter
from flashlab.accesses import Argument, OutOfBounds, RaceError
from flashlab.interpreter import KernelError, interpreted


@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr, LOAD_MASK: tl.constexpr, STORE_MASK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=(i < n) | (not LOAD_MASK), other=0.0)
    tl.store(y_ptr + i, x * 2, mask=(i < n) | (not STORE_MASK))


@triton.jit
def scaled(x, FACTOR: tl.constexpr):
    return x * FACTOR


@triton.jit
def methods(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(
        y_ptr + i, scaled(x, 2.0) + x.max(0) + x.sum(0) + tl.sum(x, 0) + tl.zeros([BLOCK], tl.float32), i < n
    )


@triton.jit
def rows(x_ptr, y_ptr, stride, n, d, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, CHECK_D: tl.constexpr):
    r, c = tl.arange(0, BLOCK_N)[:, None], tl.arange(0, BLOCK_D)[None, :]
    mask = (r < n) & ((c < d) | (not CHECK_D))
    tl.store(y_ptr + r * stride + c, tl.load(x_ptr + r * d + c, mask=(r < n) & (c < d), other=0.0), mask=mask)


@triton.jit
def count(x_ptr, total_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_add(total_ptr, tl.sum(x, 0))


@triton.jit
def accumulate(x_ptr, total_ptr, n, BARRIER: tl.constexpr):
    for i in range(0, n):
        if BARRIER:
            tl.debug_barrier()
        tl.store(total_ptr, tl.load(total_ptr) + tl.load(x_ptr + i))


@triton.jit
def forever(x_ptr):
    x = tl.load(x_ptr)
    while x >= 0:
        x = x + 1


@pytest.mark.skipif("FLASHLAB_SIDE_TRITON" not in os.environ, reason="no Triton beside the .venv's own")
def test_the_triton_under_test_is_the_one_that_was_named():
    assert triton.__version__ == os.environ["FLASHLAB_SIDE_TRITON"]


def test_a_kernel_runs_without_the_environment_variable():
    if os.environ.get("TRITON_INTERPRET"):
        pytest.skip("TRITON_INTERPRET is set")
    x, y = torch.arange(10.0), torch.full((10,), float("nan"))
    with interpreted():
        double[(2,)](x, y, 10, 8, True, True)
    assert torch.equal(y, 2 * x)


def test_tensor_methods_device_functions_and_reductions_work():
    x, y = torch.tensor([1.0, 5.0, 2.0]), torch.zeros(3)
    with interpreted():
        methods[(1,)](x, y, 3, 4)
    assert torch.equal(y, 2 * x + 5 + 8 + 8)


def test_a_grid_may_be_a_function_of_the_arguments():
    x, y = torch.arange(10.0), torch.zeros(10)
    with interpreted():
        double[lambda meta: (triton.cdiv(10, meta["BLOCK"]),)](
            x, y, 10, BLOCK=4, LOAD_MASK=True, STORE_MASK=True
        )
    assert torch.equal(y, 2 * x)


def test_a_missing_store_mask_is_reported_before_memory_is_touched():
    buffer = torch.full((16,), 7.0)
    x, y = torch.arange(10.0), buffer[:10]
    with interpreted(), pytest.raises(OutOfBounds) as error:
        double[(2, 1)](x, y, 10, 8, True, False)
    assert "program (1, 0): store to y ends 24 bytes past it: mask missing?" in str(error.value)
    assert "of double" in str(error.value)
    assert (buffer[10:] == 7).all()


def test_a_missing_load_mask_is_reported():
    x, y = torch.arange(10.0), torch.zeros(10)
    with (
        interpreted(),
        pytest.raises(OutOfBounds, match=r"program \(1,\): load from x ends 24 bytes past it"),
    ):
        double[(2,)](x, y, 10, 8, False, True)


def test_an_address_before_the_tensor_is_reported():
    x = torch.arange(20.0)
    with interpreted(), pytest.raises(OutOfBounds, match="load from x ends"):
        double[(1,)](x[:4], x[10:], 8, 8, True, True)

    @triton.jit
    def back(x_ptr):
        tl.store(x_ptr - 2, 1.0)

    with interpreted(), pytest.raises(OutOfBounds, match="store to x starts 8 bytes before it"):
        back[(1,)](x[4:])


def test_running_into_the_next_tensor_is_reported_although_that_memory_is_ours():
    both = torch.zeros(20)
    with interpreted(), pytest.raises(OutOfBounds, match="store to y ends 24 bytes past it"):
        double[(2,)](both[10:], both[:10], 10, 8, True, False)


def test_a_store_between_the_rows_of_a_view_is_reported():
    x, buffer = torch.ones(3, 3), torch.zeros(3, 8)
    with interpreted():
        rows[(1,)](x, buffer[:, :3], 8, 3, 3, 4, 4, True)
        assert buffer.sum() == 9
        with pytest.raises(
            OutOfBounds, match=r"store to y (ends 4 bytes past it|falls between its elements)"
        ):
            rows[(1,)](x, buffer[:, :3], 8, 3, 3, 4, 4, False)
        with pytest.raises(OutOfBounds, match="store to y falls between its elements"):
            rows[(1,)](x, buffer[:, :3], 8, 2, 3, 4, 4, False)


def test_an_atomic_update_is_checked_and_works():
    x, total = torch.ones(8), torch.zeros(1)
    with interpreted():
        count[(2,)](x, total, 4)
        assert total == 8
        with pytest.raises(OutOfBounds, match="atomic update of total"):
            count[(2,)](x, total[:0], 4)


@pytest.mark.parametrize(
    ("shape", "strides", "good", "bad"),
    [
        ((3, 4), (8, 1), [0, 3, 8, 19], [4, 7, 20]),
        ((4, 3), (1, 8), [0, 3, 8, 19], [4, 20]),
        ((3, 2), (0, 1), [0, 1], [2]),
        ((2, 2, 2), (100, 10, 2), [0, 2, 10, 112], [1, 4, 20, 98, 113]),
        ((0, 3), (3, 1), [], [0]),
        ((), (), [0], [1]),
    ],
)
def test_the_elements_of_a_view_are_known_exactly(shape, strides, good, bad):
    argument = Argument("x_ptr", 1000, 4, shape, strides)
    assert argument.name == "x"
    for element in good:
        assert argument.fault(np.array([1000 + 4 * element], np.uint64), 4) is None
    for element in bad:
        assert argument.fault(np.array([1000 + 4 * element], np.uint64), 4)


def test_other_errors_say_program_and_line():
    @triton.jit
    def wrong(x_ptr, BLOCK: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, BLOCK))
        tl.store(x_ptr + tl.arange(0, 2 * BLOCK), x)

    with interpreted(), pytest.raises(KernelError, match=r"program \(0,\): ValueError: .*line \d+ of wrong"):
        wrong[(1,)](torch.zeros(8), 4)


def test_bf16_tensors_are_refused_instead_of_computed_wrong():
    x = torch.zeros(4, dtype=torch.bfloat16)
    with interpreted(), pytest.raises(TypeError, match="x_ptr is torch.bfloat16"):
        methods[(1,)](x, x, 4, 4)


def triton_state():
    t = interpreter.triton_modules()
    places = (
        t.tl,
        t.tl.core,
        t.tl.math,
        t.tl.tensor,
        t.interpreter,
        t.jit.JITFunction,
        t.interpreter.GridExecutor,
    )
    return [dict(vars(place)) for place in places]


def test_triton_is_left_as_it_was_also_after_an_error():
    before = triton_state()
    x = torch.zeros(10)
    with interpreted(), interpreted():
        methods[(1,)](x, x, 3, 4)
    assert triton_state() == before
    with pytest.raises(OutOfBounds), interpreted():
        double[(2,)](x, x, 10, 8, True, False)
    assert triton_state() == before


def test_the_kernels_namespace_is_not_littered():
    names = set(globals())
    with interpreted():
        methods[(1,)](torch.zeros(3), torch.zeros(3), 3, 4)
    assert set(globals()) - names <= {"interpreter_semantic", "_flashlab_tl"}


def test_a_kernel_can_be_compiled_after_it_was_interpreted():
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    with interpreted():
        methods[(1,)](torch.zeros(3), torch.zeros(3), 3, 4)
    source = ASTSource(
        methods, {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 4}
    )
    assert "cubin" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm


def test_two_threads_take_turns():
    wrong = []

    def work(seed):
        for n in range(1, 9):
            x, y = torch.full((n,), float(seed)), torch.zeros(n)
            with interpreted():
                methods[(1,)](x, y, n, 8)
            if not torch.equal(y, 2 * x + seed + 2 * n * x):
                wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    before = triton_state()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(t.is_alive() for t in threads)
    assert not wrong
    assert triton_state() == before


class Stopped(BaseException):
    """What a time limit raises in the learner's thread."""


def test_a_launch_stopped_from_outside_leaves_triton_as_it_was():
    before, ended, x = triton_state(), [], torch.ones(1)

    def work():
        try:
            with interpreted():
                with interpreted():
                    forever[(1,)](x)
        except Stopped:
            try:
                ended.append(True)
                time.sleep(0.02)  # one more stop may be on its way
            except Stopped:
                pass

    for pause in np.linspace(0.001, 0.05, 12):
        ended.clear()
        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(pause)
        while not ended:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped)
            )
            time.sleep(0.002)
        thread.join()
        x_after, y = torch.arange(3.0), torch.zeros(3)
        with interpreted():  # also puts right what a stop in the worst moment left behind
            methods[(1,)](x_after, y, 3, 4)
        assert torch.equal(y, 2 * x_after + 2 + 3 + 3)
        assert triton_state() == before


def test_a_thread_that_died_inside_does_not_block_the_others():
    before = triton_state()
    thread = threading.Thread(target=lambda: interpreted().__enter__())  # enters and never leaves
    thread.start()
    thread.join()
    x, y = torch.arange(3.0), torch.zeros(3)
    with interpreted():
        methods[(1,)](x, y, 3, 4)
    assert torch.equal(y, 2 * x + 2 + 3 + 3)
    assert triton_state() == before


def test_a_thread_that_died_inside_does_not_keep_others_from_compiling():
    if torch.cuda.is_available():
        pytest.skip("without a GPU the driver's complaint shows that the kernel was to be compiled")
    before = triton_state()
    thread = threading.Thread(target=lambda: interpreted().__enter__())
    thread.start()
    thread.join()
    with pytest.raises(RuntimeError, match="active drivers"):
        methods[(1,)](torch.zeros(3), torch.zeros(3), 3, 4)
    assert triton_state() == before


def test_leaving_an_outer_context_also_leaves_an_inner_one_that_was_never_left():
    before = triton_state()
    with interpreted():
        interpreted().__enter__()
    assert triton_state() == before


def test_recorded_bytes_are_those_of_unmasked_lanes_under_the_arguments_name():
    x, y = torch.arange(10.0), torch.zeros(10)
    trace = interpreter.record(lambda: double[(2,)](x, y, 10, 8, True, True), tensors={"result": y})
    assert [(e.program, e.op, e.tensor, e.tile, e.bytes) for e in trace] == [
        ((0,), "load", "x", (0,), 32),
        ((0,), "store", "result", (0,), 32),
        ((1,), "load", "x", (8,), 8),
        ((1,), "store", "result", (8,), 8),
    ]
    assert trace.bytes(op="load") == trace.bytes(tensor="result") == 40


def test_a_launch_made_inside_the_recorded_function_may_interpret_by_itself():
    x, y = torch.arange(10.0), torch.zeros(10)

    def launch():
        with interpreted():
            double[(2,)](x, y, 10, 8, True, True)

    assert interpreter.record(launch).bytes() == 80


def test_a_missing_barrier_is_found():
    x, total = torch.ones(3), torch.zeros(1)
    (found,) = interpreter.find_races(lambda: accumulate[(1,)](x, total, 3, False))
    assert "reads 4 bytes of total that it stored since its last barrier" in found
    assert interpreter.find_races(lambda: accumulate[(1,)](x, total, 3, True)) == []


def test_two_programs_at_one_address_are_found():
    x, total = torch.ones(3), torch.zeros(1)
    with pytest.raises(RaceError, match="the same 4 bytes of total"):
        interpreter.check_races(lambda: accumulate[(2,)](x, total, 3, True))
    interpreter.check_races(lambda: double[(2,)](torch.ones(8), torch.zeros(8), 8, 4, True, True))
    interpreter.check_races(lambda: count[(2,)](torch.ones(8), torch.zeros(1), 4))


@pytest.mark.parametrize(
    ("triton_version", "numpy_version", "says"),
    [
        ("3.6.0", "2.4.6", "pip install 'triton>=3.7,<3.10'"),
        ("3.10.0", "2.4.6", "this is 3.10.0"),
        ("3.5.1", "2.0.0", "this is 3.5.1"),
        (None, "2.4.6", "Linux only"),
    ],
)
def test_a_version_that_does_not_work_says_what_to_install(triton_version, numpy_version, says):
    with pytest.raises(RuntimeError, match="(?s)" + says.replace("(", r"\(")):
        interpreter.check_versions(triton_version, numpy_version)


@pytest.mark.parametrize("version", ["3.7.1", "3.8.0", "3.9.0"])
def test_supported_versions_pass(version):
    interpreter.check_versions(version, "2.4.6")


def test_everything_works_with_the_environment_variable_set_too():
    code = (
        "import torch, flashlab, flashlab.interpreter as i; from flashlab.accesses import OutOfBounds\n"
        "q = torch.randn(1, 1, 5, 4); o = flashlab.attention(q, q, q, backend='fa2')\n"
        "assert (o - flashlab.attention(q, q, q, backend='naive')).abs().max() < 1e-5\n"
        "import tests.test_interpreter as t\n"
        "try:\n"
        "    with i.interpreted(): t.double[(2,)](torch.zeros(10), torch.zeros(10), 10, 8, True, False)\n"
        "except OutOfBounds as e: print(e)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        cwd=os.path.dirname(os.path.dirname(__file__)),
        capture_output=True,
        text=True,
    )
    assert "store to y ends 24 bytes past it" in run.stdout, run.stderr
