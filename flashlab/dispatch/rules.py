"""What PyTorch's source says about a CUDA call: read, not run.

The checks of `can_use_{flash,mem_efficient,cudnn}_attention` for dense tensors, in their order, under the
names that they have in the source. A rule answers True (passes), False (says no), or None: not settled by
what was read. Read: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp of pytorch/pytorch.

"2.13": commit 001f694a, a state of main after 2.13.0, less what pull request 191085 (July 2026: grouped heads
for the memory-efficient kernel, one K/V head without the flag) added to it: the header sdp_utils_cpp.h that
torch 2.13.0 installs does not have it. "2.11": the same less pull request 174245 (February 2026: dropout in
sixteenths for cuDNN), with cuDNN's head sizes of pull request 161210. The rules of 2.11 say what an H200
answered to each call of its record; tests/test_dispatch_recorded.py asks them all.
"""

from flashlab import gpus
from flashlab.dispatch.explanation import Explanation, Verdict
from flashlab.text import t

FILE = "pytorch/pytorch, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp"
CUDNN = (9, 15, 1)  # cuDNN is tried first from this version on; assumed, since there is no GPU to ask
VERSIONS = ("2.13", "2.11")  # of torch, the default first


def between(sm, low, high):
    return low <= sm <= high


def heads_agree(call, sm):
    """Equal numbers of heads, unless grouped heads are asked for."""
    return call.enable_gqa or call.Hq == call.Hkv


def heads_divide(call, sm):
    """With grouped heads, Hkv divides Hq."""
    return not call.enable_gqa or call.Hq % call.Hkv == 0


def half(call, sm):
    return call.dtype == "float16" or (call.dtype == "bfloat16" and sm >= (8, 0))


def cudnn_dim(call, sm):
    """2.13: up to 128; newer builds with cuDNN after 9.22 take up to 256 on sm90 and sm10x."""
    if call.D > 128:
        return None if call.D <= 256 and (sm == (9, 0) or sm[0] == 10) else False
    return True


def cudnn_dim_2_11(call, sm):
    """2.11 with cuDNN from 9.10 on: up to 256 on Hopper, else 128."""
    return call.D <= (256 if sm == (9, 0) else 128)


def trains_flash(call, sm):
    """Head dims above 192 in training on consumer chips."""
    if not call.requires_grad or not (between(sm, (8, 6), (8, 9)) or between(sm, (12, 0), (12, 1))):
        return True
    return call.D <= 192 or (call.D > 224 and not call.dropout)


# (check in the source, key of our sentence, rule)
FLASH = [
    ("check_for_attn_mask", "mask_flash", lambda c, sm: not c.has_tensor_mask),
    ("check_head_dim_size_flash", "dim_flash", lambda c, sm: c.D <= 256),
    ("check_flash_attention_hardware_support", "hardware", lambda c, sm: between(sm, (8, 0), (12, 1))),
    ("check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120", "dim_training", trains_flash),
    (
        "check_flash_causal_non_square_seqlens",
        "causal_not_square",
        lambda c, sm: c.mask != "causal" or c.Nq == c.Nk,
    ),
    ("check_dtypes_flash_attention", "dtype", half),
    ("check_batch_size_and_num_heads_dense", "heads", heads_agree),
    ("check_batch_size_and_num_heads_dense", "divide", heads_divide),
]
EFFICIENT = [
    ("check_mem_efficient_hardware_support", "hardware", lambda c, sm: between(sm, (5, 0), (12, 1))),
    (
        "check_head_dim_size_mem_efficient",
        "dim_efficient",
        lambda c, sm: c.D % (8 if half(c, sm) else 4 if sm >= (8, 0) else 1) == 0,
    ),
    ("check_batch_size_and_num_heads_dense", "heads_efficient", lambda c, sm: c.Hq == c.Hkv),
    ("check_tensor_dtype", "dtype", lambda c, sm: half(c, sm) or c.dtype == "float32"),
]


def cudnn_checks(version):
    """cuDNN's, which differ between the versions."""
    sixteenths = ("check_cudnn_dropout", "dropout_cudnn", lambda c, sm: c.dropout * 16 % 1 == 0)
    return [
        ("check_dtypes_low_precision", "dtype", half),
        ("check_attn_mask_shape", "learned_mask", lambda c, sm: c.mask != "learned"),
        ("check_cudnn_hardware_support", "hardware", lambda c, sm: between(sm, (8, 0), (12, 1))),
        *([] if version == "2.11" else [sixteenths]),
        ("check_batch_size_and_num_heads_dense", "heads", heads_agree),
        ("check_batch_size_and_num_heads_dense", "divide", heads_divide),
        ("check_cudnn_tensor_shapes", "dim_cudnn", cudnn_dim_2_11 if version == "2.11" else cudnn_dim),
        ("check_cudnn_tensor_shapes", "dim_eight", lambda c, sm: c.D % 8 == 0),
        ("check_cudnn_tensor_shapes", "one_key", lambda c, sm: c.Nk != 1),
        ("check_cudnn_tensor_shapes", "one_query_dropout", lambda c, sm: not (c.dropout and c.Nq == 1)),
    ]


CHECKS = {  # version of torch -> backend -> its checks
    version: {"cudnn": cudnn_checks(version), "flash": FLASH, "efficient": EFFICIENT, "math": []}
    for version in VERSIONS
}


def order_on(sm, cudnn=CUDNN):
    """The order of trying: `priority_order` and `check_prefer_cudnn_attention` for builds with CUDA 13."""
    first = ("cudnn",) if sm[0] in (9, 10) and cudnn > (9, 15, 0) else ()
    return (*first, "flash", "efficient", "math", *(("cudnn",) if not first else ()))


def from_source(call, gpu="H200", version=VERSIONS[0]):
    """The Explanation of a Call on a GPU (a name of flashlab.gpus, or a GPU) from the rules of a version.

    The math path is the same code on every device: its error, where it has one, is had by running it.
    """
    from flashlab.dispatch.ask import refusal_of

    card = gpus.get(gpu)
    sm = tuple(card.compute_capability)
    verdicts = {backend: judge(backend, call, sm, version) for backend in CHECKS[version]}
    candidates = []
    for backend in order_on(sm):
        can = verdicts[backend].can
        if can is not False:
            candidates.append(backend)
        if can:
            break
    choice = candidates[0] if len(candidates) == 1 else None
    return Explanation(
        device="cuda",
        basis="rules",
        choice=choice,
        candidates=tuple(candidates),
        order=order_on(sm),
        verdicts=tuple(verdicts.values()),
        call=call,
        refused=refusal_of(call) if choice == "math" else "",
        source=t(
            f"dispatch.read.{version.replace('.', '_')}",
            file=FILE,
            gpu=f"{card.name}, sm{sm[0]}{sm[1]}",
            cudnn=".".join(map(str, CUDNN)),
        ),
    )


def judge(backend, call, sm, version=VERSIONS[0]):
    """The Verdict of one backend: like PyTorch, it stops at the first check that says no."""
    open_question = None
    for check, key, rule in CHECKS[version][backend]:
        passes = rule(call, sm)
        if passes is False:
            return Verdict(backend, False, keys=(key,), check=check)
        if passes is None and open_question is None:
            open_question = Verdict(backend, None, keys=(f"open_{key}",), check=check)
    return open_question or Verdict(backend, True)
