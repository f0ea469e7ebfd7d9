"""The Hopper kernels on a CPU: every step right in the simulator, the host's side, what fa3 refuses."""

import ast
import inspect
import itertools
from pathlib import Path

import pytest

pytest.importorskip("triton")
import torch
from kernel_cases import assert_rows_without_keys, check_forward, draw, strided
from torch._subclasses import FakeTensorMode

import flashlab
from flashlab import bench, library, ops
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


def planned(programs, rows, block_k, shift, q_shape, k_shape):
    """The shares of `hopper_host.plan`: of each program a list of (block, batch * head), in its order."""
    from flashlab.warpgroups.translate import Translation

    tile = Translation().function(hopper.my_tile)
    numbers = hopper_host.plan(programs, rows, block_k, shift, q_shape, k_shape, torch.device("cpu")).tolist()
    firsts, blocks = numbers[: programs + 1], -(-q_shape[2] // rows)
    assert firsts[0] == programs + 1 and firsts[-1] == len(numbers) - 1, "a program reads one entry ahead"
    whole = ((int(b), int(h)) for b, _, h in (tile(w, blocks, 10**6) for w in numbers[programs + 1 : -1]))
    whole = list(whole)
    return [whole[a - programs - 1 : b - programs - 1] for a, b in itertools.pairwise(firsts)]


PLANS = [
    # programs, rows, tile of keys, shift, (B, Hq, Nq, D), (B, Hkv, Nk, D)
    (132, 128, 128, 0, (4, 16, 4096, 128), (4, 16, 4096, 128)),
    (132, 192, 128, 0, (16, 32, 1024, 64), (16, 32, 1024, 64)),
    (132, 128, 128, 4096, (2, 32, 1000, 128), (2, 8, 5096, 128)),
    (132, 128, 128, -700, (8, 16, 2000, 128), (8, 16, 1300, 128)),
    (7, 192, 128, None, (1, 4, 4000, 64), (1, 2, 500, 64)),
    (3, 128, 64, 0, (1, 1, 300, 64), (1, 1, 300, 64)),
]


@pytest.mark.parametrize("case", PLANS, ids=str)
def test_a_plan_has_every_tile_once_and_its_longest_share_is_hardly_longer_than_the_mean(case):
    programs, rows, block_k, shift, q_shape, k_shape = case
    shares = planned(*case)
    blocks, heads = -(-q_shape[2] // rows), q_shape[0] * q_shape[1]
    assert sorted(sum(shares, [])) == [(b, h) for b in range(blocks) for h in range(heads)]

    def cost(block):  # tiles of keys that the block meets, and its beginning and end
        last_row = min((block + 1) * rows, q_shape[2]) - 1
        seen = sum(shift is None or key <= last_row + shift for key in range(k_shape[2]))
        return max(-(-seen // block_k), 1) + hopper_host.BLOCK_COST

    costs = [cost(b) for b in range(blocks)]
    loads = [sum(costs[b] for b, _ in share) for share in shares]
    assert max(loads) - sum(loads) / programs <= max(costs)
    if len(sum(shares, [])) > 10 * programs and shift is not None:
        assert max(loads) <= 1.03 * sum(loads) / programs


def test_a_plan_goes_by_sections_of_heads_that_fit_in_l2_with_their_whole_groups(monkeypatch):
    monkeypatch.setattr(hopper_host, "SECTION_BYTES", 3 * 4 * 300 * 64)  # K and V of three heads
    (share,) = planned(1, 128, 64, 0, (2, 12, 300, 64), (2, 6, 300, 64))
    sections = [head // 6 for _, head in share]  # three heads of K and V are six of Q; 12 are 4 sections
    assert sections == sorted(sections)
    for section in range(4):
        mine = [block for block, head in share if head // 6 == section]
        assert mine == sorted(mine, reverse=True), "the longest are not first"


def test_without_a_mask_a_plan_goes_head_by_head():
    (share,) = planned(1, 128, 64, None, (1, 3, 300, 64), (1, 3, 700, 64))
    assert share == [(block, head) for head in range(3) for block in (2, 1, 0)]


def test_a_new_shape_inside_a_graph_is_one_sentence_and_a_planned_one_stays_in_memory(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    shapes = (1, 2, 300, 64), (1, 2, 300, 64)
    with pytest.raises(RuntimeError, match="call it once with this shape before the capture"):
        hopper_host.plan(3, 128, 64, 0, *shapes, torch.device("cuda"))
    work = hopper_host.plan(3, 128, 64, 0, *shapes, torch.device("cpu"))
    assert hopper_host.kept_for_graphs(work) is work and not hopper_host.IN_GRAPHS  # no graph on a CPU
    monkeypatch.setattr(hopper_host, "capturing", lambda device: True)
    monkeypatch.setattr(hopper_host, "IN_GRAPHS", {})
    hopper_host.kept_for_graphs(hopper_host.kept_for_graphs(work))
    assert list(hopper_host.IN_GRAPHS.values()) == [work]


def test_step_5_takes_what_was_fastest_for_each_shape():
    assert hopper_host.config_for(64)[1:] == ("one_by_one", True, 3, 3, 4, 3)
    assert hopper_host.config_for(128, 5, "top-left", 2048).order == "look_ahead"
    assert hopper_host.config_for(128, 5, "top-left", 2049).order == "in_turns"
    assert hopper_host.config_for(128, 5, None, 512).order == "in_turns"
    assert hopper_host.config_for(256) == hopper_host.config_for(256, 3)


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


def test_auto_takes_fa3_where_it_supports_the_call(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(library, "is_traced", lambda x: False)
    q, k, v = (x.as_subclass(OnHopper) for x in draw((1, 1, 1, 2, 2, 64), torch.float16))
    plain = ops.Call(None, 1.0, None, 0.0, None, False)
    assert ops.choose(q, k, plain, v) == "fa3"
    assert ops.choose(q, k, plain._replace(dropout_p=0.5), v) == "fa2"
    assert ops.choose(q.float(), k.float(), plain, v.float()) == "fa2"
    with monkeypatch.context() as off:
        off.setattr(ops, "AUTO_TAKES_FA3", False)
        assert ops.choose(q, k, plain, v) == "fa2"
    with pytest.raises(NotImplementedError, match="'fa3' has no key_lengths"):
        ops.run_fa3(q, k, v, plain._replace(key_lengths=torch.tensor([1])))


@pytest.mark.parametrize(
    ("dtype", "dim", "want"),
    [(torch.float16, 64, "fa3"), (torch.float32, 64, "fa2"), (torch.float16, 60, "fa2")],
)
def test_torch_compile_takes_fa3_where_it_has_the_format_and_in_one_graph(dtype, dim, want, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    called = []

    def backend(graph, _):
        called.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    torch._dynamo.reset()
    with FakeTensorMode():
        q = torch.empty(2, 4, 7, dim, dtype=dtype, device="cuda")
        torch.compile(flashlab.attention, backend=backend, fullgraph=True)(q, q, q)
    assert [name for name in called if name.startswith("flashlab.")] == [f"flashlab.{want}.default"]


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("kind", ["columns first", "off by one element", "expanded"])
def test_the_operator_copies_what_tma_cannot_move(kind, which):
    """Nobody could look at its tensors while the call was traced; its fake promised these strides of o."""
    plain = list(draw((2, 2, 2, 20, 20, 64), torch.float16))
    x = plain[which]
    odd = x[:1].expand(x.shape) if kind == "expanded" else strided(x, kind)
    plain[which] = odd.clone(memory_format=torch.contiguous_format)
    given = [*plain[:which], odd, *plain[which + 1 :]]
    with simulated():
        want, want_lse = library.run_fa3(*plain, "", 0.125)
        o, lse = library.fa3(*given, "", 0.125)
    assert torch.equal(o, want) and torch.equal(lse, want_lse)
    assert o.stride() == torch.empty_like(given[0]).stride()


def test_the_operator_passes_opcheck():
    q, k, v = (x.requires_grad_() for x in draw((1, 2, 1, 5, 6, 64), torch.float16))
    with simulated():
        torch.library.opcheck(library.fa3, (q, k, v, "bottom-right", 0.125))


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


def test_the_docstring_tells_of_each_step_what_it_changed_and_what_was_recorded():
    table = hopper.__doc__.split("    step  what it changes")[1].split("\n\n")[0]
    steps = [line for line in table.splitlines() if line[4:5].isdigit()]
    assert [line.split()[0] for line in steps] == list("12345")
    (record,) = bench.recorded("hopper")
    for line in steps:
        found = [
            next(
                row["tflops"]
                for row in record["rows"]
                if row.get("peer") == f"fa3 step {line.split()[0]}" and row["part"] == "forward"
                and (row["D"], row["dtype"], row["N"], row["causal"]) == (dim, "bfloat16", 4096, causal)
            )
            for dim in (128, 64) for causal in (False, True)
        ]  # fmt: skip
        assert [float(x) for x in line.split()[-4:]] == [round(x) for x in found]


def recorded_rates(part):
    """{(dtype, D, N, causal): {peer: TFLOP/s}} of the kept record."""
    (record,) = bench.recorded("hopper")
    found = {}
    for row in record["rows"]:
        if row["part"] == part and "tflops" in row:
            found.setdefault((row["dtype"], row["D"], row["N"], row["causal"]), {})[row["peer"]] = row[
                "tflops"
            ]
    return found


def test_what_auto_takes_on_hopper_was_measured_to_be_faster_than_fa2():
    cells = recorded_rates("forward")
    assert len(cells) == 54
    for (_, dim, n, _), rate in cells.items():
        assert rate["fa3 step 5"] > (1.0 if n >= 1024 else 0.9) * rate["fa2"], (dim, n)


def test_its_own_backward_was_measured_to_be_about_as_fast_as_fa2s_or_faster():
    cells = {cell: rate for cell, rate in recorded_rates("backward").items() if len(rate) == 3}
    taken = []
    for (dtype, dim, n, causal), rate in cells.items():
        x = torch.empty(1, 1, n, dim, dtype=getattr(torch, dtype))
        if not library._takes_fa2s_backward(x, x, x, "top-left" if causal else ""):
            taken.append(((dtype, dim, n, causal), rate))
    assert {cell[1:] for cell, _ in taken if cell[2] < 1024} == {(128, 512, False)}
    long = [one for one in taken if one[0][2] >= library.FA3_BACKWARD_FROM]
    assert len(long) >= 25
    for cell, rate in taken:
        assert rate["fa3, own backward"] > 0.97 * rate["fa3, fa2's backward"], cell
    for (_, dim, n, _), rate in long:
        assert dim != 128 or n < 4096 or rate["fa3, own backward"] > 400
