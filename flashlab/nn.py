"""flashlab.attention as a layer: MultiHeadAttention in the spirit of torch.nn.MultiheadAttention."""

import torch
from torch import nn

from flashlab.errors import unknown_name
from flashlab.ops import BACKENDS, attention


class MultiHeadAttention(nn.Module):
    """Projections to heads, attention, projection back: x [N, B, embed_dim] -> (o, None), o as x is; or with
    batch_first=True [B, N, embed_dim].

    In the place of torch.nn.MultiheadAttention: arguments of the same names have the same defaults, and a
    state dict of it can be loaded (`from_torch` does). Beyond it: num_kv_heads, fewer K/V heads (GQA, MQA);
    causal (as in flashlab.attention) for every call; backend (as there).

    Other than there: need_weights is refused, and so are masks, except the causal one beside is_causal=True;
    a key_padding_mask must hide the end of each sequence; a sequence without any real key gives the
    bias of out_proj, not nan; each of q, k and v is initialised by itself (xavier_uniform, biases 0), not as
    one [3 * embed_dim, embed_dim] matrix.

    torch's TransformerEncoderLayer and TransformerDecoderLayer may hold it as self_attn; a TransformerEncoder
    that was made with torch's own needs use_nested_tensor = False then.

    Raises ValueError or TypeError for sizes and arguments that do not fit.
    """

    in_proj_bias, _qkv_same_embed_dim = None, False  # torch's encoder layer has no kernel for this

    def __init__(
        self, embed_dim, num_heads, dropout=0.0, bias=True, *, kdim=None, vdim=None, num_kv_heads=None,
        batch_first=False, causal=False, backend="auto", device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
            raise ValueError(
                f"expected embed_dim to be a multiple of num_heads, got {embed_dim} and {num_heads}"
            )
        if num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(
                f"expected num_heads to be a multiple of num_kv_heads, got {num_heads} and {num_kv_heads}"
            )
        if not 0 <= dropout <= 1:
            raise ValueError(f"expected dropout from 0 to 1, got {dropout}")
        if backend not in BACKENDS:
            raise unknown_name("backend", backend, BACKENDS)
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, num_kv_heads
        self.head_dim = embed_dim // num_heads
        self.dropout, self.batch_first, self.causal, self.backend = dropout, batch_first, causal, backend
        how = dict(bias=bias, device=device, dtype=dtype)
        width = num_kv_heads * self.head_dim
        self.q_proj = nn.Linear(embed_dim, embed_dim, **how)
        self.k_proj = nn.Linear(embed_dim if kdim is None else kdim, width, **how)
        self.v_proj = nn.Linear(embed_dim if vdim is None else vdim, width, **how)
        self.out_proj = nn.Linear(embed_dim, embed_dim, **how)
        for linear in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(linear.weight)
        for linear in (self.q_proj, self.k_proj, self.v_proj, self.out_proj) if bias else ():
            nn.init.zeros_(linear.bias)
        self.register_load_state_dict_pre_hook(from_torch_names)

    @classmethod
    def from_torch(cls, module, *, causal=False, backend="auto"):
        """The same layer as `module`, a torch.nn.MultiheadAttention: same weights, outputs and gradients.

        Raises TypeError for another class, ValueError for add_bias_kv and add_zero_attn (not offered).
        """
        if not isinstance(module, nn.MultiheadAttention):
            raise TypeError(f"expected a torch.nn.MultiheadAttention, got {type(module).__name__}")
        if module.bias_k is not None or module.add_zero_attn:
            raise ValueError(
                "expected a layer without add_bias_kv and add_zero_attn: they add keys of their own"
            )
        weight = module.out_proj.weight
        layer = cls(
            module.embed_dim, module.num_heads, module.dropout, module.in_proj_bias is not None,
            kdim=module.kdim, vdim=module.vdim, batch_first=module.batch_first, causal=causal,
            backend=backend, device=weight.device, dtype=weight.dtype,
        )  # fmt: skip
        layer.load_state_dict(module.state_dict())
        return layer.train(module.training)

    def forward(
        self, query, key=None, value=None, key_padding_mask=None, need_weights=False, attn_mask=None,
        is_causal=None, *, key_lengths=None, seed=None,
    ):  # fmt: skip
        """With batch_first: query [B, Nq, embed_dim], key [B, Nk, kdim], value [B, Nk, vdim] -> (o [B, Nq,
        embed_dim], None).

        key defaults to query, value to key. Keys that are padding: key_padding_mask [B, Nk] bool, True for
        padding as in torch.nn.MultiheadAttention, or floats, -inf for padding and 0 else (on a GPU the host
        waits, to see that it hides ends only), or key_lengths, integers [B] (it does not wait). is_causal:
        instead of the layer's `causal`, in this call; attn_mask [N, N] may then be the causal mask. seed:
        repeats a choice of dropout, which is applied in training only.
        """
        if need_weights:
            raise ValueError(
                "the weights [B, H, Nq, Nk] are never in memory as a whole: that makes attention fast and "
                "its memory linear in N. need_weights=True wants torch.nn.MultiheadAttention"
            )
        if attn_mask is not None and not is_causal:
            raise TypeError(
                "arbitrary masks are not offered: for causal attention give causal=True to the layer or "
                "is_causal=True here and no attn_mask; for others use torch.nn.MultiheadAttention"
            )
        key = query if key is None else key
        value = key if value is None else value
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x.dim() != 3:
                form = "[B, N, features]" if self.batch_first else "[N, B, features]"
                raise ValueError(f"expected {name} to be {form}, got shape {list(x.shape)}")
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        if attn_mask is not None and not is_causal_mask(attn_mask, query.shape[1], key.shape[1]):
            raise ValueError(
                f"expected no attn_mask beside is_causal=True, or the causal one [N, N], got another, "
                f"{list(attn_mask.shape)}: for others use torch.nn.MultiheadAttention"
            )
        if key_padding_mask is not None:
            if key_lengths is not None:
                raise ValueError("expected key_padding_mask or key_lengths, got both")
            key_lengths = lengths_of(key_padding_mask, key)
        q = self.split(self.q_proj(query), self.num_heads)
        k, v = (self.split(x, self.num_kv_heads) for x in (self.k_proj(key), self.v_proj(value)))
        o = attention(
            q, k, v, causal=self.causal if is_causal is None else is_causal, key_lengths=key_lengths,
            dropout_p=self.dropout if self.training else 0.0, seed=seed, backend=self.backend,
        )  # fmt: skip
        o = self.out_proj(o.transpose(1, 2).flatten(2))
        return (o if self.batch_first else o.transpose(0, 1)), None

    def split(self, x, heads):
        """[B, N, heads * D] -> [B, heads, N, D], a view."""
        return x.unflatten(-1, (heads, self.head_dim)).transpose(1, 2)

    def extra_repr(self):
        return (
            f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, "
            f"dropout={self.dropout}, causal={self.causal!r}, backend={self.backend!r}"
        )


def lengths_of(key_padding_mask, key):
    """int32 [B]: how many keys of each sequence are real, where True marks padding at its end."""
    if key_padding_mask.is_floating_point():  # torch's encoder layers hand it on like this
        key_padding_mask = hidden_by(key_padding_mask)
    if key_padding_mask.dtype != torch.bool:
        raise TypeError(
            "expected key_padding_mask to be bool, True for padding, or floats, -inf for padding, got "
            f"{key_padding_mask.dtype}"
        )
    if key_padding_mask.shape != key.shape[:2]:
        raise ValueError(
            f"expected key_padding_mask to be {list(key.shape[:2])}, got {list(key_padding_mask.shape)}"
        )
    lengths = key_padding_mask.logical_not().sum(1, dtype=torch.int32)
    ends = torch.arange(key.shape[1], device=key_padding_mask.device) >= lengths[:, None]
    if not torch.equal(ends, key_padding_mask):
        raise ValueError(
            "expected key_padding_mask to hide the end of each sequence (True for padding): move padding "
            "that is on the left or inside to the right, or pack the sequences for flashlab.attention_varlen"
        )
    return lengths


def hidden_by(mask):
    """bool: where a mask of floats, which would be added to scores, hides (-inf); elsewhere it must be 0."""
    hidden = mask == float("-inf")
    if not torch.equal(hidden, mask != 0):
        raise ValueError("expected a mask of floats to hold -inf (hidden) or 0: a bias is not offered")
    return hidden


def is_causal_mask(mask, num_queries, num_keys):
    """Whether an attn_mask of torch.nn.MultiheadAttention hides what lies behind each row, and only that."""
    mask = hidden_by(mask) if mask.is_floating_point() else mask
    causal = torch.ones(num_queries, num_keys, dtype=torch.bool, device=mask.device).triu(1)
    return num_queries == num_keys and torch.equal(mask, causal)


def from_torch_names(module, state, prefix, *args):
    """Rename the entries of a torch.nn.MultiheadAttention in a state dict that is about to be loaded."""
    for kind in ("weight", "bias"):
        joint = state.pop(f"{prefix}in_proj_{kind}", None)
        if joint is not None:
            for name, part in zip("qkv", joint.chunk(3), strict=True):
                state[f"{prefix}{name}_proj.{kind}"] = part
    for name in "qkv":
        if f"{prefix}{name}_proj_weight" in state:
            state[f"{prefix}{name}_proj.weight"] = state.pop(f"{prefix}{name}_proj_weight")
