"""One call of scaled_dot_product_attention, as far as its dispatch can depend on it."""

from dataclasses import asdict, dataclass

from flashlab.errors import unknown_name

DTYPES = ("float16", "bfloat16", "float32", "float64")
MASKS = ("none", "causal", "bool", "float", "learned")


@dataclass(frozen=True)
class Call:
    """q [B, Hq, Nq, D], k and v [B, Hkv, Nk, D] of `dtype`, and what is asked of the function.

    `mask`: "none"; "causal" (is_causal=True); "bool" or "float" (an attn_mask [Nq, Nk] of that kind);
    "learned" (a float mask that requires a gradient, as a learned bias does). `masked_rows`: one row of such
    a mask sees nothing. `training` is what a module hands on: dropout_p counts only in training.
    `requires_grad`: q, k and v need gradients. Hkv and Nk default to Hq and Nq.
    """

    B: int = 1
    Hq: int = 8
    Hkv: int | None = None
    Nq: int = 1024
    Nk: int | None = None
    D: int = 64
    dtype: str = "float16"
    mask: str = "none"
    masked_rows: bool = False
    dropout_p: float = 0.0
    training: bool = True
    requires_grad: bool = False
    enable_gqa: bool = False

    def __post_init__(self):
        for name, default in (("Hkv", self.Hq), ("Nk", self.Nq)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        for name in ("B", "Hq", "Hkv", "Nq", "Nk", "D"):
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ValueError(f"expected {name} to be a whole number from 1 up, got {size!r}")
        if self.dtype not in DTYPES:
            raise unknown_name("dtype", self.dtype, DTYPES)
        if self.mask not in MASKS:
            raise unknown_name("mask", self.mask, MASKS)
        if not isinstance(self.dropout_p, int | float) or not 0 <= self.dropout_p < 1:
            raise ValueError(f"expected dropout_p from 0 to below 1, got {self.dropout_p!r}")
        for name in ("masked_rows", "training", "requires_grad", "enable_gqa"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"expected {name} to be True or False, got {getattr(self, name)!r}")
        if self.masked_rows and not self.has_tensor_mask:
            raise ValueError(f"masked_rows needs mask='bool', 'float' or 'learned', got mask={self.mask!r}")

    @property
    def dropout(self):
        """The dropout_p that reaches the function."""
        return float(self.dropout_p) if self.training else 0.0

    @property
    def has_tensor_mask(self):
        """Is an attn_mask passed?"""
        return self.mask in ("bool", "float", "learned")

    def fields(self):
        """All fields as a dict that JSON can hold."""
        return asdict(self)

    def changed(self):
        """The fields that are not those of Call(): Call(**call.changed()) == call."""
        plain = Call().fields()
        told = {name: value for name, value in self.fields().items() if value != plain[name]}
        return told | {"Hkv": self.Hkv, "Nk": self.Nk}

    def arguments(self, device, values=False):
        """(q, k, v, keyword arguments) for scaled_dot_product_attention on `device`.

        Without `values` all rows share one piece of memory: enough for the dispatch, which looks at shapes,
        dtypes, devices and the last stride, and no question of how large N is. With `values` they are random.
        """
        import torch

        dtype = getattr(torch, self.dtype)

        def tensor(heads, n):
            shape = (self.B, heads, n, self.D)
            if values:
                made = torch.randn(shape, device=device, dtype=torch.float32).to(dtype)
            else:
                made = torch.zeros(1, 1, 1, self.D, device=device, dtype=dtype).expand(shape)
            return made.requires_grad_(self.requires_grad)

        options = {"dropout_p": self.dropout, "is_causal": self.mask == "causal"}
        options["enable_gqa"] = self.enable_gqa
        if self.has_tensor_mask:
            options["attn_mask"] = self._mask(device, dtype, values)
        return tensor(self.Hq, self.Nq), tensor(self.Hkv, self.Nk), tensor(self.Hkv, self.Nk), options

    def _mask(self, device, dtype, values):
        """[Nq, Nk]; with `values` the last key is hidden and, with masked_rows, all keys from row 0."""
        import torch

        if not values:
            kind = torch.bool if self.mask == "bool" else dtype
            mask = torch.ones(1, self.Nk, device=device, dtype=kind).expand(self.Nq, self.Nk)
            return mask.requires_grad_(self.mask == "learned")
        seen = torch.ones(self.Nq, self.Nk, device=device, dtype=torch.bool)
        seen[:, -1] = self.Nk == 1
        if self.masked_rows:
            seen[0] = False
        if self.mask == "bool":
            return seen
        scores = torch.zeros(self.Nq, self.Nk, device=device, dtype=dtype)
        return scores.masked_fill(~seen, float("-inf")).requires_grad_(self.mask == "learned")

    def __str__(self):
        sizes = f"B={self.B} Hq={self.Hq} Hkv={self.Hkv} Nq={self.Nq} Nk={self.Nk} D={self.D} {self.dtype}"
        said = [f"mask={self.mask}" + (" with a row that sees nothing" if self.masked_rows else "")]
        said += [f"dropout_p={self.dropout:g}"] if self.dropout else []
        said += [name for name in ("requires_grad", "enable_gqa") if getattr(self, name)]
        return ", ".join([sizes, *said])
