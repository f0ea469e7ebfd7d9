"""flashlab.decode_attention compiled, on a GPU: `pytest -m gpu tests/test_decode_gpu.py`."""

import math

import pytest

pytest.importorskip("triton")
import torch
from decode_cases import check_decode, draw_cache, draw_queries, in_pages

import flashlab
from flashlab.kernels import decode as kernels

pytestmark = pytest.mark.gpu

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
LENGTHS = [0, 1, 16, 127, 1000, 1024]


def decode(q, k, v, lengths, **how):
    return flashlab.decode_attention(q, k, v, lengths, return_lse=True, **how)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("num_queries", [1, 3])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_every_format_and_head_dim_is_right_dense_and_paged(dim, num_queries, dtype):
    k, v, lengths = draw_cache(LENGTHS, 2, 1024, dim, dtype, "cuda")
    q = draw_queries(6, 8, num_queries, dim, dtype, "cuda")
    want = check_decode(decode, q, k, v, lengths, num_splits=3)
    k_pages, v_pages, table = in_pages((k, v), LENGTHS, 16, 64)
    got = check_decode(decode, q, k_pages, v_pages, lengths, dense=(k, v), block_table=table, num_splits=3)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


@pytest.mark.parametrize("dim", [1, 8, 72, 80, 96, 120])
def test_head_dims_that_are_no_power_of_two_are_right(dim):
    k, v, lengths = draw_cache(LENGTHS, 2, 1024, dim, torch.float16, "cuda")
    check_decode(decode, draw_queries(6, 8, 1, dim, torch.float16, "cuda"), k, v, lengths)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "num_queries"), [(32, 1, 1), (6, 6, 1), (6, 1, 40), (3, 3, 100)]
)
def test_few_and_many_rows_are_right(heads, kv_heads, num_queries, dtype):
    k, v, lengths = draw_cache([5, 333], kv_heads, 400, 64, dtype, "cuda")
    check_decode(decode, draw_queries(2, heads, num_queries, 64, dtype, "cuda"), k, v, lengths, num_splits=2)


@pytest.mark.parametrize("page", [1, 24, 256])
def test_every_size_of_a_page_is_right(page):
    k, v, lengths = draw_cache(LENGTHS, 2, 1024, 128, torch.bfloat16, "cuda")
    k_pages, v_pages, table = in_pages((k, v), LENGTHS, page, -(-1024 // page) + 2)
    q = draw_queries(6, 8, 1, 128, torch.bfloat16, "cuda")
    check_decode(decode, q, k_pages, v_pages, lengths, dense=(k, v), block_table=table)


def test_every_number_of_splits_gives_the_same():
    k, v, lengths = draw_cache([0, 5, 4096], 1, 4096, 64, torch.float32, "cuda")
    q = draw_queries(3, 4, 1, 64, torch.float32, "cuda")
    o, lse = check_decode(decode, q, k, v, lengths, num_splits=1)
    for splits in (2, 3, 8, 64, 200):
        got_o, got_lse = check_decode(decode, q, k, v, lengths, num_splits=splits)
        assert (got_o - o).abs().max() <= 2e-6
        assert torch.allclose(got_lse, lse, rtol=0, atol=4e-6)  # 8 units in the last place
    assert (o[0] == 0).all() and (lse[0] == -math.inf).all()


@pytest.mark.parametrize("scale", [0.0, -0.7, 3.5])
def test_the_scale_may_be_any_number(scale):
    k, v, lengths = draw_cache([100, 1000], 2, 1000, 64, torch.float16, "cuda")
    check_decode(decode, draw_queries(2, 4, 2, 64, torch.float16, "cuda"), k, v, lengths, scale=scale)


def test_fp32_is_not_tf32():
    k, v, lengths = draw_cache([512], 2, 512, 64, torch.float32, "cuda")
    q = draw_queries(1, 2, 1, 64, torch.float32, "cuda")
    want = torch.softmax(q.double() @ k.double().mT / 8, -1) @ v.double()
    assert (decode(q, k, v, lengths)[0] - want).abs().max() < 1e-5 * want.abs().max()


@pytest.mark.parametrize("paged", [False, True])
def test_a_captured_graph_replays_with_other_lengths_and_another_table(paged):
    sizes, others = [1000, 17, 1, 640], [3, 1000, 0, 641]
    k, v, lengths = draw_cache([1000] * 4, 2, 1008, 128, torch.bfloat16, "cuda")
    q, how = draw_queries(4, 8, 1, 128, torch.bfloat16, "cuda"), {}
    if paged:
        k, v, how["block_table"] = in_pages((k, v), [1000] * 4, 16, 63)
    lengths.copy_(torch.tensor(sizes))
    decode(q, k, v, lengths, **how)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = decode(q, k, v, lengths, **how)
    lengths.copy_(torch.tensor(others))
    q.copy_(draw_queries(4, 8, 1, 128, torch.bfloat16, "cuda", seed=9))
    if paged:
        how["block_table"].copy_(how["block_table"].flip(0).clone())
    graph.replay()
    want = decode(q, k, v, lengths, **how)
    assert torch.equal(o, want[0]) and torch.equal(lse, want[1])
    assert (o[2] == 0).all() and (lse[2] == -math.inf).all()


def test_a_call_does_not_wait_for_the_gpu():
    k, v, lengths = draw_cache(LENGTHS, 2, 1024, 64, torch.float16, "cuda")
    q = draw_queries(6, 8, 1, 64, torch.float16, "cuda")
    decode(q, k, v, lengths)
    torch.cuda.set_sync_debug_mode("error")
    try:
        decode(q, k, v, lengths)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_wrong_lengths_are_clamped_and_found_only_on_demand(monkeypatch):
    k, v, lengths = draw_cache([1000, 1000], 2, 1000, 64, torch.float16, "cuda")
    q = draw_queries(2, 4, 1, 64, torch.float16, "cuda")
    wrong = torch.tensor([-5, 10**9], dtype=torch.int32, device="cuda")
    want = decode(q, k, v, torch.tensor([0, 1000], dtype=torch.int32, device="cuda"))
    assert torch.equal(decode(q, k, v, wrong)[0], want[0])
    monkeypatch.setenv("FLASHLAB_VALIDATE", "1")
    with pytest.raises(ValueError, match="cache_lengths from 0 to 1000, got -5"):
        decode(q, k, v, wrong)


def test_twenty_runs_are_equal_bit_for_bit():
    k, v, lengths = draw_cache([8000, 5], 2, 8192, 128, torch.bfloat16, "cuda")
    q = draw_queries(2, 8, 1, 128, torch.bfloat16, "cuda")
    first = decode(q, k, v, lengths)
    for _ in range(20):
        again = decode(q, k, v, lengths)
        assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])


def test_a_cache_of_more_than_2_to_the_31_elements_is_right():
    k = torch.zeros(2, 2, 2**21, 272, dtype=torch.float16, device="cuda")[..., :128]  # 4.6 GB
    k[1, 1, -300:].normal_()
    q = draw_queries(2, 4, 1, 128, torch.float16, "cuda")
    lengths = torch.full((2,), 2**21, dtype=torch.int32, device="cuda")
    o, lse = decode(q, k, k, lengths)
    want_lse = torch.logsumexp(q[1, 2:].float() @ k[1, 1].float().mT * 128**-0.5, -1)
    assert torch.allclose(lse[1, 2:], want_lse, atol=1e-4)
    assert torch.allclose(lse[0], torch.full_like(lse[0], math.log(2**21)), atol=1e-4)


def test_the_grid_fills_this_gpu():
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    assert kernels.count_sms(torch.device("cuda", 0)) == sms
    splits = kernels.choose_splits(1, 8, 1, 65536, sms)
    assert 0.9 <= splits * 8 / sms <= 1.0
