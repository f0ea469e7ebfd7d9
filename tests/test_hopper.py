"""The Hopper kernels on a CPU: every step right in the simulator, the host's side, what fa3 refuses."""

import ast
import inspect
from pathlib import Path

import pytest

pytest.importorskip("triton")
import torch
from kernel_cases import assert_rows_without_keys, check_forward, draw, strided

import flashlab
from flashlab import library, ops
from flashlab.kernels import hopper, hopper_host
from flashlab.warpgroups.simulator import simulated


def run(q, k, v, *, causal=False, scale, config=None, step=5):
    """The forward pass in the simulator, its partitions taking turns in an arbitrary order."""
    with simulated("random 0"):
        return hopper_host.forward(q, k, v, causal=causal or None, scale=scale, config=config, step=step)


def small(step, block_k=32, num_stages=2):
    """A step with small key tiles, so that few rows make many of them."""
    config = hopper_host.config_for(64, step)
    return config._replace(block_k=block_k, num_stages=1 if step == 1 else num_stages)


# (B, Hq, Hkv, Nq, Nk, D)
SHAPES = [(1, 1, 1, 1, 1, 64), (1, 4, 2, 65, 97, 64), (1, 1, 1, 129, 70, 64), (1, 1, 1, 63, 64, 40)]


@pytest.mark.parametrize("causal", (False, "top-left", "bottom-right"))
@pytest.mark.parametrize("step", hopper_host.STEPS)
def test_each_step_of_the_ladder_is_right_for_any_mask_and_length(step, causal):
    for shape in SHAPES:
        q, k, v = draw(shape, torch.bfloat16)
        check_forward(run, q, k, v, causal=causal, scale=shape[-1] ** -0.5, config=small(step))


@pytest.mark.parametrize("dim", [128, 256])
def test_wider_heads_with_the_shipped_tiles_are_right_in_fp16(dim):
    q, k, v = draw((1, 1, 1, 70, 150, dim), torch.float16)
    check_forward(run, q, k, v, causal="bottom-right", scale=dim**-0.5)


@pytest.mark.parametrize("scale", [0.0, -0.4, 2.0])
def test_a_scale_of_zero_or_below_is_right(scale):
    q, k, v = draw((1, 1, 1, 40, 100, 64), torch.float16)
    for causal in (False, "top-left"):
        check_forward(run, q, k, v, causal=causal, scale=scale, config=small(3))


@pytest.mark.parametrize("step", hopper_host.STEPS)
def test_rows_without_keys_give_zero_and_minus_infinity_even_beside_a_nan_in_v(step):
    q, k, v = draw((1, 1, 1, 200, 40, 64), torch.float16)
    v[:, :, 3] = float("nan")
    o, lse = run(q, k, v, causal="bottom-right", scale=0.1, config=small(step))
    empty = torch.arange(200) < 160
    assert_rows_without_keys(o[..., empty, :], lse[..., empty], torch.ones(160, dtype=bool))
    assert torch.isfinite(lse[..., ~empty]).all()


def test_keys_that_no_row_may_see_change_nothing_even_if_they_are_nan():
    q, k, v = draw((1, 2, 2, 40, 90, 64), torch.float16)
    want = run(q, k, v, causal="top-left", scale=0.1, config=small(3))
    k[:, :, 40:], v[:, :, 40:] = float("nan"), float("nan")
    got = run(q, k, v, causal="top-left", scale=0.1, config=small(3))
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


def test_no_keys_at_all_need_no_kernel():
    q, k, v = draw((1, 1, 1, 5, 0, 64), torch.float16)
    o, lse = hopper_host.forward(q, k, v, scale=1.0)
    assert (o == 0).all() and (lse == -torch.inf).all()


@pytest.mark.parametrize("kind", ["rows before heads", "slice of qkv", "every other row"])
def test_heads_anywhere_in_memory_are_read_and_written_in_their_place(kind):
    q, k, v = (strided(x, kind) for x in draw((2, 2, 2, 70, 70, 64), torch.float16))
    check_forward(run, q, k, v, causal=True, scale=0.125, config=small(5))


@pytest.mark.parametrize("programs", [1, 3])
def test_a_program_that_stays_on_its_sm_does_all_blocks(programs, monkeypatch):
    monkeypatch.setattr(hopper_host, "H200_SMS", programs)
    q, k, v = draw((1, 4, 2, 150, 170, 64), torch.float16)
    for order in hopper_host.ORDERS:
        config = hopper_host.Config(64, order, persistent=True)
        check_forward(run, q, k, v, causal="bottom-right", scale=0.125, config=config)


def tiles_in_order(num_blocks, total_heads, section):
    """The (block, head) that `my_tile` gives to each number."""
    from flashlab.warpgroups.translate import Translation

    tile = Translation().function(hopper.my_tile)
    work = range(num_blocks * total_heads)
    return [tuple(map(int, tile(w, num_blocks, total_heads, total_heads, section)[::2])) for w in work]


@pytest.mark.parametrize("section", [1, 3, 8, 100])
def test_every_tile_has_its_turn_and_the_longest_of_a_section_are_first(section):
    order = tiles_in_order(5, 8, section)
    assert sorted(order) == [(block, head) for block in range(5) for head in range(8)]
    for first in range(0, 8, section):
        heads = range(first, min(first + section, 8))
        blocks = [block for block, head in order if head in heads]
        assert blocks == sorted(blocks, reverse=True)
    assert [head // section for _, head in order] == sorted(head // section for _, head in order)


def test_a_section_is_as_many_heads_as_fit_in_l2_with_their_whole_groups():
    k, config = torch.empty(1, 4, 4096, 128, dtype=torch.float16), hopper_host.config_for(128)
    assert hopper_host.section(config, k, 1, "top-left") == 8  # 2 MiB of K and V a head
    assert hopper_host.section(config, k, 4, "top-left") == 32
    assert hopper_host.section(config, k, 4, None) == 1
    assert hopper_host.section(hopper_host.config_for(128, 4), k, 4, "top-left") == 1
    assert hopper_host.section(config, k.repeat(1, 1, 16, 1), 1, "top-left") == 1


def test_a_descriptor_ends_where_the_head_ends_and_knows_its_base():
    x = torch.zeros(2, 3, 50, 40, dtype=torch.bfloat16)
    d = hopper_host.describe(x, 64)
    assert d.base is x and d.shape == [2, 3, 50, 40] and d.block_shape == [1, 1, 64, 64]
    assert hopper_host.describe(x.clone(), 64).base is not x


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda q, k, v: (q.float(), k.float(), v.float()), "float32: it has fp16 and bf16"),
        (lambda q, k, v: (q[..., :60], k[..., :60], v[..., :60]), "head dim 60: it has multiples of 8"),
        (lambda q, k, v: (q, strided(k, "columns first"), v), "k with strides .*contiguous"),
        (lambda q, k, v: (q, k, strided(v, "off by one element")), "v with an address of 2 modulo 16"),
        (lambda q, k, v: (q, k, v[:, :, :1].expand(v.shape)), "v with strides"),
    ],
)
def test_what_is_not_supported_says_what_and_why(change, says):
    q, k, v = change(*draw((1, 1, 1, 20, 20, 64), torch.float16))
    with pytest.raises(NotImplementedError, match=f"(?s)'fa3' has no .*{says}"):
        hopper_host.forward(q, k, v, scale=1.0)


def test_a_step_that_there_is_not_is_an_error():
    q, k, v = draw((1, 1, 1, 2, 2, 64), torch.float16)
    with pytest.raises(ValueError, match="steps are 1 to 5, got step=6"):
        hopper_host.forward(q, k, v, scale=1.0, step=6)


def test_backend_fa3_on_another_device_says_in_one_sentence_what_it_needs():
    q, k, v = draw((1, 1, 1, 2, 2, 64), torch.float16)
    with pytest.raises(NotImplementedError, match="Hopper GPUs only.*these tensors are on the cpu"):
        flashlab.attention(q, k, v, backend="fa3")


class OnHopper(torch.Tensor):
    """A tensor that says it is on an H200."""

    device = torch.device("cuda", 0)


def test_auto_takes_fa3_only_when_the_switch_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(library, "is_traced", lambda x: False)
    q, k, v = (x.as_subclass(OnHopper) for x in draw((1, 1, 1, 2, 2, 64), torch.float16))
    plain = ops.Call(None, 1.0, None, 0.0, None, False)
    assert ops.choose(q, k, plain, v) == "fa2"
    monkeypatch.setattr(ops, "AUTO_TAKES_FA3", True)
    assert ops.choose(q, k, plain, v) == "fa3"
    assert ops.choose(q, k, plain._replace(dropout_p=0.5), v) == "fa2"
    assert ops.choose(q.float(), k.float(), plain, v.float()) == "fa2"
    with pytest.raises(NotImplementedError, match="'fa3' has no key_lengths"):
        ops.run_fa3(q, k, v, plain._replace(key_lengths=torch.tensor([1])))


def test_fa3s_gradients_are_those_of_fa2(monkeypatch):
    q, k, v = (x.requires_grad_() for x in draw((1, 2, 1, 20, 20, 64), torch.float16))

    def grads(run):
        o, lse = run()
        return torch.autograd.grad(o.float().square().sum() + lse.sum(), (q, k, v))

    want = grads(lambda: library.run_fa2(q, k, v, None, None, "top-left", 0.125, 0.0))
    with simulated():
        got = grads(lambda: library.run_fa3(q, k, v, "top-left", 0.125))
        by_operator = grads(lambda: library.fa3(q, k, v, "top-left", 0.125))
    for x, y, z in zip(want, got, by_operator, strict=True):
        assert torch.allclose(x, y, atol=5e-3) and torch.equal(y, z)


def test_the_kernel_is_short_and_every_wait_says_for_whom():
    tree = ast.parse(inspect.getsource(hopper))
    kernels = [f for f in tree.body if isinstance(f, ast.FunctionDef)]
    assert sum(f.end_lineno - f.lineno + 2 for f in kernels) < 150
    for name in ("hopper", "hopper_first", "hopper_parts", "hopper_orders"):
        lines = Path(hopper.__file__).with_name(f"{name}.py").read_text().splitlines()
        for i, line in enumerate(lines):
            if line.strip().startswith("mbarrier.wait("):
                assert lines[i - 1].strip().startswith("# waits for: "), f"{name}, line {i + 1}"


def test_the_docstring_tells_of_each_step_what_it_changed_and_invents_no_number():
    table = hopper.__doc__.split("    step  what it changes")[1].split("\n\n")[0]
    assert [line.split()[0] for line in table.splitlines()[1:] if line[4].isdigit()] == list("12345")
    assert table.count("not yet measured on the H200") == 5
