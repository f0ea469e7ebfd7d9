"""A small decoder that predicts the next character: the usual Transformer, its attention from flashlab.nn."""

from dataclasses import dataclass

import torch
from torch import nn

from flashlab.nn import MultiHeadAttention


@dataclass(frozen=True)
class Sizes:
    """context and batch in characters and rows; width of the model; heads that share kv_heads; layers."""

    context: int = 32
    batch: int = 2
    width: int = 32
    heads: int = 2
    kv_heads: int = 1
    layers: int = 1


SMALL = Sizes()  # what the interpreter can train
GPU = Sizes(context=512, batch=16, width=256, heads=4, kv_heads=2, layers=4)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); [B, N, width] -> the same."""

    def __init__(self, sizes, backend):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(sizes.width), nn.LayerNorm(sizes.width)
        self.attention = MultiHeadAttention(
            sizes.width,
            sizes.heads,
            num_kv_heads=sizes.kv_heads,
            causal=True,
            batch_first=True,
            backend=backend,
        )
        self.mlp = nn.Sequential(
            nn.Linear(sizes.width, 4 * sizes.width), nn.GELU(), nn.Linear(4 * sizes.width, sizes.width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))[0]
        return x + self.mlp(self.norm_2(x))


class CharModel(nn.Module):
    """ids [B, N] of characters, N up to the context -> logits [B, N, vocabulary]."""

    def __init__(self, vocabulary, sizes=SMALL, backend="auto"):
        super().__init__()
        self.characters = nn.Embedding(vocabulary, sizes.width)
        self.places = nn.Embedding(sizes.context, sizes.width)
        self.blocks = nn.Sequential(*[Block(sizes, backend) for _ in range(sizes.layers)])
        self.norm, self.head = nn.LayerNorm(sizes.width), nn.Linear(sizes.width, vocabulary)

    def forward(self, ids):
        x = self.characters(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))
