"""flashlab: learn FlashAttention by running it, taking it apart and watching every byte move.

Names are loaded when they are first used, so that `import flashlab` costs nothing: no torch, no triton.
"""

import importlib

__version__ = "0.1.0"

_HOME = {
    "Problem": "problem",
    "make_inputs": "problem",
    "attention": "ops",
    "decode_attention": "decode",
    "attention_varlen": "varlen",
    "check": "checks",
    "hint": "checks",
    "solution": "checks",
    "predict": "learn",
    "reveal": "learn",
    "review": "learn",
    "pretest": "learn",
    "posttest": "learn",
    "say": "learn",
    "show_source": "learn",
    "lang": "text",
    "SoftmaxStepper": "widgets",
    "TilePlayer": "widgets",
}
_MODULES = (
    "bench checks data dispatch doctor errors figures gpus integrations interpreter kernels layouts learn "
    "memory needs nn online_softmax ops problem progress quiz reference schedule testing text tiled trace "
    "train varlen widgets"
).split()

__all__ = sorted(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module("flashlab." + _HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module("flashlab." + name)
    raise AttributeError(
        "module 'flashlab' has no attribute {!r}; it has: {}".format(name, ", ".join(__all__ + _MODULES))
    )


def __dir__():
    return sorted([*globals(), *__all__, *_MODULES])
