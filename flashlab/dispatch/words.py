"""PyTorch's reasons, and what each of them means in one sentence of ours (text/*/dispatch.toml, `reason`)."""

import re

from flashlab.text import t

# The beginning of a message of PyTorch (sdp_utils.cpp, sdp_utils_cpp.{h,cpp}) -> the key of our sentence.
PATTERNS = {
    r"Both fused kernels do not support non-zero dropout": "dropout_cpu",
    r"(Flash|Memory Efficient|cuDNN|CuDNN) attention has been runtime disabled": "disabled",
    r"All tensors need to be on cuda device": "not_on_cuda",
    r"All fused kernels requires query, key and value to be 4 dimensional": "not_4d",
    r"Flash Attention does not support non-null attn_mask": "mask_flash",
    r"Please use the following attn mask shapes": "mask_shape",
    r"Flash attention requires q,k,v to have the same last dimension and to be less": "dim_flash",
    r"Flash attention requires q,k,v to have the same last dimension\.": "dim_differs",
    r"Mem efficient attention requires last dimension of inputs to be divisible": "dim_efficient",
    r"Mem efficient attention on sm80 or newer requires": "unaligned",
    r"(Flash attention|Mem Efficient Attention|cuDNN MHA) only supports gpu architectures": "hardware",
    r"(flash attention|Mem Efficient attention|cuDNN SDPA) requires a CUDA device": "no_device",
    r"Flash attention currently doesn't support training with head_dim": "dim_training",
    r"Flash attention does not support the is_causal flag when seqlen_q != seqlen_k": "causal_not_square",
    r"Expected query, key and value to all be of dtype": "dtype",
    r"For dense inputs, both fused kernels require .* same batch_size": "batch",
    r"For dense input, both fused kernels require .* same num_heads": "heads",
    r"Both fused kernels require key and value to have the same num_heads": "kv_heads",
    r"The number of heads in key/value must divide number of heads in query": "divide",
    r"All fused kernels do not support zero seq_len": "empty",
    r"All fused kernels require the last dimension of the input to have stride 1": "stride",
    r"cuDNN dropout probability resolution is limited": "dropout_cudnn",
    r"cuDNN SDPA does not support batch size or num_heads greater": "too_many",
    r"head_dim should be no more than": "dim_cudnn",
    r"head_dim should be a multiple of 8": "dim_eight",
    r"cudnn SDPA does not support key/value sequence length 1": "one_key",
    r"cudnn SDPA does not support query sequence length 1 with dropout": "one_query_dropout",
    r"cuDNN SDPA on SM 9\.0/10\.x does not support backward": "dim_cudnn_backward",
    r"cuDNN SDPA is not deterministic": "deterministic",
    r"(SDPA fprop|Dropout reference|not-multiple-of-64|s_q (less|not)|\d+ cuDNN version)": "old_cudnn",
    r"Torch was not compiled with": "not_built",
    r"No viable backend for scaled_dot_product_attention was found": "not_here",
    r"(Both fused kernels require .* broadcastable|For both fused kernels, if one of)": "nested",
    r"(.*NT inputs|.*[Nn]ested|.*ragged|.*cuDNN-supported .*layout|Fused kernels do not support)": "nested",
}


def key_of(reason):
    """The key of our sentence for one of PyTorch's reasons; "other" for one that we do not know."""
    return next((key for pattern, key in PATTERNS.items() if re.match(pattern, reason)), "other")


def keys_of(backend, reasons):
    """The keys for all of one backend's reasons. Without a reason: "silent".

    Where the numbers of heads differ, the memory-efficient kernel is told to say what the others say, though
    no flag would change its answer.
    """
    keys = tuple(map(key_of, reasons)) or ("silent",)
    return tuple("heads_efficient" if (backend, key) == ("efficient", "heads") else key for key in keys)


def translate(key):
    """Our sentence for a key, in the chosen language."""
    return t(f"dispatch.reason.{key}")
