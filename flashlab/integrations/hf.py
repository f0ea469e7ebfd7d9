"""flashlab as an attention implementation of Hugging Face Transformers (5.0 and later; extra "hf").

    from flashlab.integrations import hf
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation=hf.register())

Two registrations belong together: the function that computes attention, and the one that makes its mask.
Without the second, transformers hands the first no mask at all and padding is silently attended to.
"""

from functools import partial

import torch

from flashlab.decode import decode_attention
from flashlab.errors import unknown_name
from flashlab.integrations.layout import Layout, Packed, from_bounds, read_mask
from flashlab.ops import BACKENDS, attention
from flashlab.varlen import attention_varlen, pad, unpad

FEW_ROWS = 16  # new tokens, up to which a cache is read by the decoding kernel
REFUSED = "softcap s_aux sinks position_bias attention_bias head_mask indices block_indices".split()


def register(name="flashlab", backend="auto"):
    """Make `attn_implementation=name` known to transformers, for every model; returns `name`.

    backend: as for flashlab.attention. "auto" runs the kernels on NVIDIA GPUs of sm_80 and later and PyTorch
    elsewhere; "fa2" names the kernels, so that CPU tensors are interpreted (for tiny models). With kernels,
    padding other than on the right and packed rows go through attention_varlen and a few new tokens against a
    cache through decode_attention; PyTorch and dropout get them as padded batches with key_lengths.

    Transformers takes every name with "flash" in it for a package that must be importable; register() tells
    it that this one is there. A model that lists the flash implementations it accepts
    (`_compatible_flash_implementations`) warns and takes one of those instead: register(name="lab") for it.

    Raises ImportError without transformers, ValueError for names that are taken or unknown backends.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise ImportError(
            "flashlab.integrations.hf needs transformers 5.0 or later: pip install 'flashlab[hf]' (found: "
            f"{error})"
        ) from error
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    if not isinstance(name, str) or not name or set(name) & set("/|:@"):
        raise ValueError(f"expected a name without / | : or @, which stand for the Hub there, got {name!r}")
    taken = AttentionInterface().get(name)
    if name == "eager" or (taken and getattr(taken, "func", None) is not attend):
        raise ValueError(f"{name!r} is another attention of transformers: choose a name of your own")
    if "flash" in name:
        spare_from_import(name)
    AttentionInterface.register(name, partial(attend, backend=backend))
    AttentionMaskInterface.register(name, read_mask)
    return name


def spare_from_import(name):
    """Keep transformers from importing a flash-attention package called `name`."""
    from transformers import modeling_utils

    load = getattr(modeling_utils, "lazy_import_flash_attention", None)
    if load is None:
        raise ImportError(
            'this transformers loads names with "flash" in them in a way unknown to flashlab: choose another'
        )
    if not hasattr(load, "spared"):

        def load_unless_spared(implementation, *args, **kwargs):
            return (
                None if implementation in load_unless_spared.spared else load(implementation, *args, **kwargs)
            )

        load_unless_spared.spared = set()
        modeling_utils.lazy_import_flash_attention = load_unless_spared
    modeling_utils.lazy_import_flash_attention.spared.add(name)


def attend(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, backend="auto",
    sliding_window=None, position_ids=None, **kwargs,
):  # fmt: skip
    """Transformers' contract: query [B, Hq, Nq, D], key and value [B, Hkv, Nk, D] -> ([B, Nq, Hq, D], None).

    attention_mask: a Layout, or None where the model makes no mask; then is_causal, or else module.is_causal,
    says whether row i sees only keys up to i. K/V heads are not repeated.

    Raises ValueError or TypeError for masks and extras that this attention does not have, in words.
    """
    refuse(kwargs, sliding_window, key.shape[2])
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    layout = layout_of(attention_mask, query, key, is_causal, position_ids, kwargs)
    how = dict(scale=None if scaling is None else float(scaling))
    kernels = backend if backend != "auto" else choose_kernels(query)
    if use_decoding(layout, query, key, dropout, kernels):
        return decode(query, key, value, layout, **how).transpose(1, 2).contiguous(), None
    how |= dict(dropout_p=dropout, backend=backend)
    if layout.packed:
        o = attend_packed(query, key, value, layout, kernels, **how)
    else:
        o = attention(query, key, value, causal=layout.causal or False, key_lengths=layout.lengths, **how)
        o = o.transpose(1, 2)
    return o.contiguous(), None


def refuse(kwargs, sliding_window, num_keys):
    """Raise ValueError for what a model asks beyond exact attention; to ignore it would change the result."""
    asked = [name for name in REFUSED if kwargs.get(name) is not None]
    if asked:
        raise ValueError(
            f"flashlab's attention has no {' and no '.join(asked)}, which this model asks for: use "
            'attn_implementation="eager"'
        )
    if kwargs.get("output_attentions"):
        raise ValueError(
            "output_attentions=True wants the weights [B, H, Nq, Nk], which flash attention never has in "
            'memory: use attn_implementation="eager"'
        )
    if sliding_window is not None and sliding_window < num_keys:
        raise ValueError(
            f"flashlab's attention has no sliding window, and this model's ({sliding_window}) is shorter "
            f'than the {num_keys} keys: use attn_implementation="sdpa"'
        )


def layout_of(mask, query, key, is_causal, position_ids, kwargs):
    """The Layout that a mask, or its absence, stands for; packed where bounds or positions say so."""
    num_queries, num_keys = query.shape[2], key.shape[2]
    if mask is not None and not isinstance(mask, Layout):
        got = f"{mask.dtype} {list(mask.shape)}" if torch.is_tensor(mask) else type(mask).__name__
        raise TypeError(
            f"expected the mask that flashlab made (hf.register() registers both), got {got}: arbitrary "
            'masks and biases are not offered; a padding mask is [B, N]. Else use attn_implementation="sdpa"'
        )
    if mask is not None and (mask.num_queries, mask.num_keys) != (num_queries, num_keys):
        raise ValueError(
            f"expected {mask.num_queries} queries and {mask.num_keys} keys, as the mask was made for, got "
            f"{num_queries} and {num_keys}"
        )
    causal = mask.causal if mask else ("top-left" if is_causal and num_queries > 1 else None)
    bounds = kwargs.get("cu_seq_lens_q"), kwargs.get("cu_seq_lens_k")
    if bounds[0] is not None:
        if query.shape[0] != 1 or (mask and mask.real is not None):
            raise ValueError("expected cu_seq_lens with one row of packed sequences and no padding mask")
        return Layout(num_queries, num_keys, causal, packed=from_bounds(*bounds))
    if mask is not None:
        return mask.with_positions(position_ids)
    if causal and num_queries != num_keys:
        raise ValueError(
            f"this model makes no mask, and its {num_queries} causal queries for {num_keys} keys could be "
            'the first or the last of them: use attn_implementation="sdpa"'
        )
    return Layout(num_queries, num_keys, causal).with_positions(position_ids)


def choose_kernels(query):
    """What "auto" stands for here: "fa2" where the kernels are compiled, else "sdpa"."""
    on_gpu = query.device.type == "cuda" and query.shape[-1] <= 256
    return "fa2" if on_gpu and torch.cuda.get_device_capability(query.device) >= (8, 0) else "sdpa"


def use_decoding(layout, query, key, dropout, kernels):
    """Whether these are a few new tokens against a cache, without gradient: the decoding kernel's work."""
    gradient = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    few = layout.in_cache and layout.num_queries <= FEW_ROWS
    if layout.packed and len(layout.packed.q_rows[0]) < query.shape[0] * query.shape[2]:
        return False  # padding among the new tokens
    return few and kernels == "fa2" and not gradient and not dropout


def decode(query, key, value, layout, scale):
    """decode_attention on the caches as they lie in memory: lengths, or for padding inside a table of tokens.

    A page table with pages of one token names the real keys of each entry; pages may overlap, so the cache
    [B, Hkv, N, D] is seen as [B * Hkv * N - (Hkv - 1) * N, 1, Hkv, D]: nothing is copied.
    """
    if layout.packed is None:
        lengths = layout.lengths
        if lengths is None:
            lengths = torch.full(query.shape[:1], layout.num_keys, dtype=torch.int32, device=query.device)
        return decode_attention(query, key, value, lengths, scale=scale)
    positions, lengths = layout.token_table()
    batch, heads, num_keys, dim = key.shape
    first = torch.arange(batch, dtype=torch.int32, device=key.device) * (heads * num_keys)
    pages = [
        x.contiguous().as_strided(
            (num_keys * (heads * batch - heads + 1), 1, heads, dim), (dim, dim, num_keys * dim, 1)
        )
        for x in (key, value)
    ]
    return decode_attention(query, *pages, lengths, block_table=positions + first[:, None], scale=scale)


def attend_packed(query, key, value, layout, kernels, *, scale, dropout_p, backend):
    """o [B, Nq, Hq, D], 0 at padding: the real rows, gathered, as sequences of their own."""
    packed: Packed = layout.packed
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    q, k, v = q[packed.q_rows], k[packed.k_rows], v[packed.k_rows]  # [total, H, D]
    bounds = packed.cu_seqlens_q, packed.cu_seqlens_k
    causal = layout.causal or False
    if kernels == "fa2" and not dropout_p:
        o = attention_varlen(q, k, v, *bounds, causal=causal, scale=scale)
    else:  # the last query on the last row, the first key on the first: "bottom-right" holds for each length
        lengths = bounds[1].diff()
        most = int(bounds[0].diff().max()), int(lengths.max())
        q = pad(q, bounds[0], most[0], side="left")
        k, v = (pad(x, bounds[1], most[1]) for x in (k, v))
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        causal = "bottom-right" if causal else False
        how = dict(causal=causal, scale=scale, dropout_p=dropout_p, backend=backend)
        o = attention(q, k, v, key_lengths=lengths, **how).transpose(1, 2)
        o, _ = unpad(o, bounds[0].diff(), side="left", total=len(packed.q_rows[0]))
    rows = o.new_zeros(query.shape[0], query.shape[2], *o.shape[1:])
    return rows.index_put(packed.q_rows, o)
