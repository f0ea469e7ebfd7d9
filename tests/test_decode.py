"""flashlab.decode_attention, interpreted: against the float64 reference, dense and paged, split anyhow."""

import math
import subprocess
import sys

import pytest

pytest.importorskip("triton")
import torch
from decode_cases import NAN, check_decode, draw_cache, draw_queries, in_pages
from kernel_cases import STRIDES, strided

import flashlab
from flashlab import decode as operator
from flashlab import interpreter
from flashlab.accesses import OutOfBounds
from flashlab.kernels import decode as kernels
from flashlab.kernels import gate, launch
from flashlab.kernels.launch import Config

SMALL = Config(16, 16)  # blocks of 16 keys: a few tokens make several
LENGTHS = [0, 1, 16, 17, 40]
HEADS = [(4, 2), (6, 1), (6, 6)]


def decode(q, k, v, lengths, scale=None, **how):
    """The kernels with small blocks."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return kernels.decode(q, k, v, lengths, scale=scale, config=SMALL, **how)


@pytest.mark.parametrize("num_queries", [1, 3])
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_every_length_and_group_of_heads_is_right_and_pages_give_the_same(heads, kv_heads, num_queries):
    k, v, lengths = draw_cache(LENGTHS, kv_heads, 48, 24)
    q = draw_queries(5, heads, num_queries, 24)
    want = check_decode(decode, q, k, v, lengths, num_splits=3)
    k_pages, v_pages, table = in_pages((k, v), LENGTHS, 16, 4)
    how = dict(block_table=table, num_splits=3)
    got = check_decode(decode, q, k_pages, v_pages, lengths, dense=(k, v), **how)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


@pytest.mark.parametrize("page", [1, 5, 16, 64])
def test_a_page_may_be_smaller_than_a_key_block_or_larger_or_cross_it(page):
    k, v, lengths = draw_cache(LENGTHS, 2, 64, 16)
    k_pages, v_pages, table = in_pages((k, v), LENGTHS, page, -(-40 // page) + 1)
    q = draw_queries(5, 2, 1, 16)
    check_decode(decode, q, k_pages, v_pages, lengths, dense=(k, v), block_table=table, num_splits=2)


@pytest.mark.parametrize("num_queries", [1, 3])
@pytest.mark.parametrize("paged", [False, True])
def test_every_number_of_splits_gives_the_same(paged, num_queries):
    sizes = [0, 5, 150]
    k, v, lengths = draw_cache(sizes, 1, 160, 16)
    q, how, dense = draw_queries(3, 2, num_queries, 16), {}, (k, v)
    if paged:
        k, v, how["block_table"] = in_pages((k, v), sizes, 16, 10)
    o, lse = check_decode(decode, q, k, v, lengths, dense=dense, num_splits=1, **how)
    for splits in (2, 3, 8, 64):
        got_o, got_lse = check_decode(decode, q, k, v, lengths, dense=dense, num_splits=splits, **how)
        assert (got_o - o).abs().max() <= 2e-6
        assert torch.allclose(got_lse, lse, rtol=0, atol=4e-6)  # 8 units in the last place
    assert (o[0] == 0).all() and (lse[0] == -math.inf).all() and lse[2].isfinite().all()


def test_splits_share_the_keys_that_there_are_and_not_the_room():
    k, v, lengths = draw_cache([64], 1, 4096, 16)
    trace = interpreter.record(
        lambda: decode(draw_queries(1, 1, 1, 16), k, v, lengths, num_splits=4), {"k": k}
    )
    loaded = {}
    for event in trace:
        if event.tensor == "k":
            loaded[event.program] = loaded.get(event.program, 0) + event.bytes
    assert loaded == {(s,): 16 * 16 * 4 for s in range(4)}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("splits", [1, 3])
def test_16_bit_caches_are_right(dtype, splits):
    k, v, lengths = draw_cache([0, 37], 1, 40, 32, dtype)
    check_decode(decode, draw_queries(2, 3, 2, 32, dtype), k, v, lengths, num_splits=splits)


@pytest.mark.parametrize("dim", [1, 2, 72, 256])
def test_every_head_dim_is_right(dim):
    k, v, lengths = draw_cache([19, 33], 1, 40, dim)
    check_decode(decode, draw_queries(2, 2, 1, dim), k, v, lengths, num_splits=2)


@pytest.mark.parametrize("scale", [0.0, -0.7, 1, 3.5])
def test_the_scale_may_be_any_number(scale):
    k, v, lengths = draw_cache([3, 40], 1, 40, 16)
    check_decode(decode, draw_queries(2, 2, 3, 16), k, v, lengths, scale=scale, num_splits=2)


@pytest.mark.parametrize("size", [30, 1e6])
def test_large_scores_are_right(size):
    k, v, lengths = draw_cache([50], 1, 50, 16)
    check_decode(decode, draw_queries(1, 2, 2, 16) * size, k, v, lengths, num_splits=3)


def test_more_rows_than_a_tile_holds_are_divided_among_programs():
    k, v, lengths = draw_cache([5, 40], 2, 48, 16)
    check_decode(decode, draw_queries(2, 6, 13, 16), k, v, lengths, num_splits=2)


def test_more_new_tokens_than_the_cache_holds_leaves_the_first_without_keys():
    k, v, lengths = draw_cache([2], 1, 16, 16)
    o, lse = check_decode(decode, draw_queries(1, 2, 5, 16), k, v, lengths, num_splits=2)
    assert (o[:, :, :3] == 0).all() and (lse[:, :, :3] == -math.inf).all() and lse[:, :, 3:].isfinite().all()


@pytest.mark.parametrize("kind", STRIDES)
def test_any_memory_order_is_right(kind):
    k, v, lengths = draw_cache([7, 33], 2, 40, 16)
    q = strided(draw_queries(2, 4, 3, 16), kind)
    check_decode(decode, q, strided(k, kind), strided(v, kind), lengths, num_splits=2)


def test_caches_that_are_slices_of_one_bigger_tensor_are_right():
    k, v, lengths = draw_cache([7, 33], 2, 40, 16)
    layers = torch.full((2, 2, 3, 50, 24), NAN)  # [k or v, B, heads and one more, room, D and more]
    layers[0, :, :2, :40, :16], layers[1, :, :2, :40, :16] = k, v
    check_decode(
        decode, draw_queries(2, 4, 1, 16), *layers[:, :, :2, :40, :16].unbind(0), lengths, num_splits=2
    )


def test_lengths_and_tables_may_be_slices_too():
    k, v, lengths = draw_cache([20, 33], 1, 40, 16)
    k_pages, v_pages, table = in_pages((k, v), [20, 33], 8, 6)
    wide = torch.full((2, 20), -7, dtype=torch.int32)
    wide[:, ::3][:, :6] = table
    lengths = lengths.repeat_interleave(2)[::2]
    assert not lengths.is_contiguous()
    how = dict(block_table=wide[:, ::3][:, :6], num_splits=2)
    check_decode(decode, draw_queries(2, 1, 1, 16), k_pages, v_pages, lengths, dense=(k, v), **how)


def test_lengths_and_table_entries_that_are_wrong_are_clamped_inside_the_kernel():
    k, v, _ = draw_cache([40, 40], 1, 40, 16)
    q = draw_queries(2, 1, 1, 16)
    o, lse = decode(q, k, v, torch.tensor([-3, 9999], dtype=torch.int32), num_splits=2)
    want = decode(q, k, v, torch.tensor([0, 40], dtype=torch.int32), num_splits=2)
    assert torch.equal(o, want[0]) and torch.equal(lse, want[1])
    pages = k.transpose(1, 2)[:, :8].contiguous()
    table = torch.tensor([[-5, 1], [0, 2**31 - 1]], dtype=torch.int32)
    o = decode(q, pages, pages, torch.tensor([16, 16], dtype=torch.int32), block_table=table)[0]
    assert torch.equal(o, decode(q, pages, pages, torch.tensor([16, 16]), block_table=table.clamp(0, 1))[0])


@pytest.mark.parametrize(
    ("q", "cache"),
    [
        ((0, 2, 1, 8), (0, 2, 5, 8)),
        ((2, 2, 0, 8), (2, 2, 5, 8)),
        ((2, 0, 1, 8), (2, 0, 5, 8)),
        ((2, 2, 1, 8), (2, 2, 0, 8)),
    ],
    ids=str,
)
def test_empty_inputs_give_empty_or_zero_outputs(q, cache):
    q, k, lengths = torch.ones(q), torch.ones(cache), torch.zeros(q[0], dtype=torch.int32)
    for splits in (None, 3):
        o, lse = flashlab.decode_attention(q, k, k, lengths, num_splits=splits, return_lse=True)
        assert o.shape == q.shape and lse.shape == q.shape[:3]
        assert (o == 0).all() and (lse == -math.inf).all()


@pytest.mark.parametrize("num_pages", [0, 3])
@pytest.mark.parametrize("columns", [0, 2])
def test_a_pool_without_pages_and_a_table_without_columns_are_empty_caches(num_pages, columns):
    q, pool = torch.ones(2, 2, 1, 8), torch.full((num_pages, 4, 1, 8), NAN)
    how = dict(block_table=torch.full((2, columns), -1, dtype=torch.int32), return_lse=True)
    o, lse = flashlab.decode_attention(q, pool, pool, torch.zeros(2, dtype=torch.int32), **how)
    assert (o == 0).all() and (lse == -math.inf).all()


def test_a_nan_that_a_row_sees_is_not_hidden():
    k, v, lengths = draw_cache([40, 40], 1, 40, 16)
    k[0, 0, 20] = NAN
    for splits in (1, 3):
        o, lse = decode(draw_queries(2, 1, 1, 16), k, v, lengths, num_splits=splits)
        assert o[0].isnan().all() and lse[0].isnan().all() and o[1].isfinite().all()


def test_programs_do_not_race_and_stay_inside_their_tensors():
    k, v, lengths = draw_cache(LENGTHS, 2, 48, 24)
    k_pages, v_pages, table = in_pages((k, v), LENGTHS, 16, 4)
    q = draw_queries(5, 4, 3, 24)
    found = interpreter.find_races(
        lambda: decode(q, k_pages, v_pages, lengths, block_table=table, num_splits=3)
    )
    assert found == []


def test_a_kernel_that_forgets_the_length_of_a_tensor_is_caught(monkeypatch):
    k, v, lengths = draw_cache([40], 1, 40, 16)
    right = kernels.launch

    def forget(kernel, grid, *args, **options):
        args = list(args)
        if kernel is kernels.split_kernel:
            args[kernel.arg_names.index("max_length")] = 64
        right(kernel, grid, *args, **options)

    monkeypatch.setattr(kernels, "launch", forget)
    with pytest.raises(OutOfBounds, match="mask missing"):
        decode(draw_queries(1, 1, 1, 16), k, v, lengths + 10, num_splits=1)


def test_the_bytes_that_move_are_those_of_the_docstring():
    lengths, splits, (batch, heads, kv_heads, tokens, dim) = [10, 40], 3, (2, 6, 2, 2, 16)
    k, v, device_lengths = draw_cache(lengths, kv_heads, 48, dim, torch.float16)
    q = draw_queries(batch, heads, tokens, dim, torch.float16)
    trace = interpreter.record(lambda: decode(q, k, v, device_lengths, num_splits=splits))
    assert trace.bytes("load", "k") == trace.bytes("load", "v") == sum(lengths) * kv_heads * dim * 2
    assert trace.bytes("load", "q") == splits * q.numel() * 2  # every split has its own copy of the rows
    partial = splits * batch * heads * tokens * (dim + 1) * 4
    assert trace.bytes("load", "part_o") + trace.bytes("load", "part_lse") == partial
    output = batch * heads * tokens * (dim * 2 + 4)
    assert trace.bytes("store", "o") + trace.bytes("store", "lse") == partial + output


# How many splits. An H100 has 132 SMs.


@pytest.mark.parametrize("programs", [1, 2, 4, 8, 16, 32, 40, 64, 70, 90])
def test_few_heads_and_many_keys_fill_the_gpu(programs):
    splits = kernels.choose_splits(1, programs, 1, 65536, 132)
    assert splits == kernels.choose_splits(programs, 1, 1, 65536, 132)
    waves = splits * programs / 132
    assert 0.65 <= waves <= 2.0
    if programs <= 32:
        assert 0.9 <= waves <= 1.0


@pytest.mark.parametrize("programs", [132, 133, 200, 512, 10000])
def test_as_many_heads_as_sms_are_not_split(programs):
    assert kernels.choose_splits(programs, 1, 1, 10**6, 132) == 1
    assert kernels.choose_splits(1, programs, 1, 10**6, 132) == 1


def test_a_split_has_keys_enough_to_be_worth_it():
    assert kernels.choose_splits(1, 1, 1, 512, 132) == 1
    assert kernels.choose_splits(1, 1, 1, 1024, 132) <= 1024 // 128
    assert kernels.choose_splits(0, 8, 1, 4096, 132) == kernels.choose_splits(1, 8, 1, 0, 132) == 1


@pytest.mark.parametrize(("rows", "block_q"), [(1, 16), (16, 16), (17, 32), (500, 32)])
def test_a_tile_has_as_many_rows_as_it_needs_and_warps_to_hold_them(rows, block_q):
    config = Config(32, 64, 4, 3)
    assert kernels.fit(config, rows, False) == Config(block_q, 64, 4 if block_q == 16 else 8, 3)
    assert kernels.fit(config, rows, True).num_stages == 5


def test_row_blocks_count_as_programs():
    assert kernels.choose_splits(1, 8, 4, 65536, 132) == kernels.choose_splits(1, 32, 1, 65536, 132)


@pytest.mark.parametrize(("sequences", "kv_heads", "room"), [(1, 8, 8192), (2, 1, 4096), (70, 2, 4096)])
def test_the_grid_is_chosen_from_shapes_and_never_from_lengths(sequences, kv_heads, room, monkeypatch):
    monkeypatch.setattr(kernels, "count_sms", lambda device: 132)
    grids = []
    monkeypatch.setattr(kernels, "launch", lambda kernel, grid, *args, **options: grids.append(grid))
    q, k = torch.ones(sequences, kv_heads * 4, 1, 1), torch.ones(sequences, kv_heads, room, 1)
    for n in (0, room):
        lengths = torch.full((sequences,), n, dtype=torch.int32)
        kernels.decode(q, k, k, lengths, scale=1.0)
    half = len(grids) // 2
    assert grids[:half] == grids[half:]
    splits = kernels.choose_splits(sequences, kv_heads, 1, room, 132)
    assert grids[0] == (splits * sequences * kv_heads,) and half == (1 if splits == 1 else 2)


# As machine code


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_on_hopper_nothing_spills_and_the_pipeline_is_there(dim, rows):
    config = launch.table_config(90, 2, dim, "decode")
    q, k = (torch.empty(2, heads, n, dim, dtype=torch.float16) for heads, n in ((8, rows), (2, 512)))
    lengths = torch.empty(2, dtype=torch.int32)
    how = dict(num_splits=4, scale=0.1, config=config)
    split, merge = gate.compile_calls(lambda: kernels.decode(q, k, k, lengths, **how), 90)
    assert split.spills == merge.spills == 0
    pair = 2 * config.block_k * dim * 2  # bytes of a K and a V tile
    assert split.shared >= (config.num_stages - 1) * pair, "the pipeline's stages are not there"
    programs = 2 if rows == 1 and dim != 128 else 1
    assert split.shared <= gate.SHARED_MEMORY[90] // programs, "the programs do not fit on an SM"
    assert split.count("LDGSTS") > 0, "no asynchronous loads"
    assert split.count("HMMA") + split.count("HGMMA") > 0, "no tensor core instructions"


@pytest.mark.parametrize("arch", [80, 89, 120])
def test_other_gpus_get_a_kernel_that_fits_and_does_not_spill_for_paged_caches_too(arch):
    config = launch.table_config(arch, 2, 128, "decode")
    q, pool = torch.empty(2, 8, 1, 128, dtype=torch.float16), torch.empty(9, 16, 2, 128, dtype=torch.float16)
    lengths, table = torch.empty(2, dtype=torch.int32), torch.empty(2, 4, dtype=torch.int32)
    how = dict(block_table=table, num_splits=1, scale=0.1, config=config)
    (split,) = gate.compile_calls(lambda: kernels.decode(q, pool, pool, lengths, **how), arch)
    assert split.spills == 0 and split.shared <= gate.SHARED_MEMORY[arch]
    assert split.count("LDGSTS") > 0 and split.count("HMMA") > 0


@pytest.mark.parametrize("arch", [80, 89, 90])
@pytest.mark.parametrize("size", [2, 4])
def test_every_gpu_and_format_has_a_row_in_the_table(arch, size):
    for dim in (1, 64, 65, 128, 256):
        assert launch.table_config(arch, size, dim, "decode").block_k >= 16


# The public call

Q = draw_queries(2, 4, 1, 8)
K, V, LENGTH = draw_cache([3, 9], 2, 9, 8)
POOL, TABLE = torch.ones(5, 4, 2, 8), torch.tensor([[4, 0, 1], [2, 1, 3]], dtype=torch.int32)


def test_the_public_call_returns_o_and_on_demand_lse():
    decoded = flashlab.decode_attention(Q, K, V, LENGTH)
    o, lse = check_decode(
        lambda *a, **how: flashlab.decode_attention(*a, return_lse=True, **how), Q, K, V, LENGTH
    )
    assert torch.equal(decoded, o) and lse.shape == (2, 4, 1)


def test_one_token_against_a_full_cache_is_attention():
    k, v, _ = draw_cache([9, 9], 2, 9, 8)
    want = flashlab.attention(Q, k, v)
    assert torch.allclose(flashlab.decode_attention(Q, k, v, torch.tensor([9, 9])), want, atol=1e-6)


@pytest.mark.parametrize(
    ("error", "says", "change"),
    [
        (TypeError, "expected q to be a torch tensor, got ndarray", dict(q=Q.numpy())),
        (ValueError, r"expected q to be \[B, Hq, Nq, D\], got shape \[4, 1, 8\]", dict(q=Q[0])),
        (ValueError, r"k_cache to be \[B, Hkv, Nmax, D\], got shape \[2, 9, 8\]", dict(k_cache=K[0])),
        (
            ValueError,
            r"v_cache to be \[n_pages, page, Hkv, D\]",
            dict(k_cache=POOL, v_cache=POOL[0], block_table=TABLE),
        ),
        (TypeError, "float16, bfloat16 or float32, got float64", dict(q=Q.double())),
        (TypeError, r"one dtype, got torch.float32 and torch.float16 \(v_cache\)", dict(v_cache=V.half())),
        (ValueError, "expected k_cache on cpu, got meta", dict(k_cache=K.to("meta"))),
        (ValueError, "the D of q, 8, got 6", dict(k_cache=K[..., :6])),
        (ValueError, r"one shape, got \[2, 2, 9, 8\] and \[2, 2, 5, 8\]", dict(v_cache=V[:, :, :5])),
        (ValueError, "caches for 1 sequences, as q has, got 2", dict(q=Q[:1])),
        (ValueError, "multiple of Hkv, got Hq = 3 and Hkv = 2", dict(q=Q[:, :3])),
        (ValueError, r"cache_lengths to be \[2\], got shape \[1\]", dict(cache_lengths=LENGTH[:1])),
        (TypeError, "cache_lengths to be a tensor of integers, got list", dict(cache_lengths=[3, 9])),
        (TypeError, "cache_lengths to be int32 .*got float32", dict(cache_lengths=LENGTH.float())),
        (ValueError, "cache_lengths from 0 to 9, got 3 to 10", dict(cache_lengths=torch.tensor([3, 10]))),
        (ValueError, "cache_lengths from 0 to 9, got -1 to 9", dict(cache_lengths=torch.tensor([-1, 9]))),
        (TypeError, "num_splits to be an int or None, got float", dict(num_splits=2.0)),
        (TypeError, "num_splits to be an int or None, got bool", dict(num_splits=True)),
        (ValueError, "num_splits of at least 1, got 0", dict(num_splits=0)),
        (TypeError, "expected scale to be a number or None, got str", dict(scale="1")),
        (ValueError, "expected a finite scale, got nan", dict(scale=NAN)),
        (
            ValueError,
            r"block_table to be \[2, pages\], got shape \[2\]",
            dict(k_cache=POOL, v_cache=POOL, block_table=LENGTH),
        ),
        (
            TypeError,
            "block_table to be int32 .*got float32",
            dict(k_cache=POOL, v_cache=POOL, block_table=TABLE.float()),
        ),
        (
            ValueError,
            "cache_lengths from 0 to 8, got 3 to 9",
            dict(k_cache=POOL, v_cache=POOL, block_table=TABLE[:, :2]),
        ),
        (
            ValueError,
            r"used entries of block_table from 0 to 2, got 4 at \[0, 0\]",
            dict(k_cache=POOL[:3], v_cache=POOL[:3], block_table=TABLE),
        ),
        (
            ValueError,
            "pages of at least one slot",
            dict(k_cache=POOL[:, :0], v_cache=POOL[:, :0], block_table=TABLE),
        ),
    ],
)
def test_bad_input_says_what_was_expected_and_what_came(error, says, change):
    call = dict(q=Q, k_cache=K, v_cache=V, cache_lengths=LENGTH) | change
    with pytest.raises(error, match=says):
        flashlab.decode_attention(**call)


def test_a_head_dim_beyond_the_kernels_is_refused():
    big = torch.zeros(1, 1, 2, 257)
    with pytest.raises(ValueError, match="D from 1 to 256, got 257"):
        flashlab.decode_attention(big, big, big, torch.tensor([2]))


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("splits", [0, 2])
def test_the_operator_is_registered_as_pytorch_wants_it(paged, splits):
    caches = (POOL, POOL) if paged else (K, V)
    args = (Q, *caches, LENGTH, TABLE if paged else None, splits, 0.3)
    torch.library.opcheck(operator.decode, args)


def test_torch_compile_takes_the_call_whole():
    def step(q, k, v, lengths, table):
        return flashlab.decode_attention(q, k, v, lengths, block_table=table, return_lse=True)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for got, want in zip(
        compiled(Q, POOL, POOL, LENGTH, TABLE), step(Q, POOL, POOL, LENGTH, TABLE), strict=True
    ):
        assert torch.equal(got, want)


def test_gradients_are_refused_and_not_silently_zero():
    q = Q.clone().requires_grad_()
    with torch.no_grad():
        flashlab.decode_attention(q, K, V, LENGTH)
    with pytest.raises(RuntimeError, match="decode_attention has no gradient"):
        flashlab.decode_attention(q, K, V, LENGTH).sum().backward()


@pytest.mark.parametrize("paged", [False, True])
def test_without_triton_pytorch_computes_the_formula(paged):
    k, v, lengths = draw_cache(LENGTHS, 2, 48, 24)
    q, how = draw_queries(5, 4, 3, 24), dict(block_table=None, scale=0.3)
    want = decode(q, k, v, lengths, scale=0.3)
    if paged:
        k, v, how["block_table"] = in_pages((k, v), LENGTHS, 16, 3)
    o, lse = operator.formula(q, k, v, lengths, **how)
    assert torch.allclose(o, want[0], atol=1e-6) and torch.allclose(lse, want[1], atol=2e-6)


def test_without_triton_the_public_call_works():
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch, flashlab\n"
        "q = torch.ones(1, 2, 1, 4)\n"
        "print(flashlab.decode_attention(q, q, q, torch.tensor([1])).flatten().tolist())\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == str([1.0] * 8), run.stderr
