"""The calls that are recorded on a GPU, and that a page without Python can offer: a product of choices."""

import itertools

from flashlab.dispatch.call import Call

BASE = Call(Hq=8, Nq=1024, Nk=1024)
AXES = {  # field of Call -> its choices; the last varies fastest
    "dtype": ("float16", "bfloat16", "float32"),
    "mask": ("none", "causal", "bool", "learned"),
    "Hkv": (8, 2, 1),
    "enable_gqa": (False, True),
    "Nq": (1024, 1),
    "D": (64, 128, 256),
    "dropout_p": (0.0, 0.1),
    "requires_grad": (False, True),
}


def grid():
    """Every Call of the product of AXES, in order."""
    fixed = BASE.fields()
    return [
        Call(**(fixed | dict(zip(AXES, chosen, strict=True)))) for chosen in itertools.product(*AXES.values())
    ]


def more():
    """Single calls beside the product: odd head sizes, few keys, rows that see nothing, evaluation."""
    base = BASE.fields()
    changes = [
        *({"D": d, "requires_grad": g} for d in (80, 100, 192, 208, 512) for g in (False, True)),
        *({"mask": "float", "dtype": dtype} for dtype in ("float16", "float32")),
        *(
            {"mask": m, "masked_rows": True, "dtype": d}
            for m in ("bool", "float")
            for d in ("float16", "float32")
        ),
        *({"mask": m, "Nq": 256} for m in ("none", "causal")),
        *({"Nk": 1, "Nq": n} for n in (1, 1024)),
        {"Hkv": 3, "enable_gqa": True},
        {"dropout_p": 0.125},
        {"dropout_p": 0.125, "Nq": 1},
        {"dropout_p": 0.1, "training": False},
        {"dtype": "float64"},
        {"B": 4, "Nq": 333, "Nk": 333},
    ]
    return [Call(**(base | change)) for change in changes]


def calls(quick=False):
    """All of them; `quick`: the single calls, and every 61st of the product."""
    return more() + (grid()[::61] if quick else grid())
