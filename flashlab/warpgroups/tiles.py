"""Values of a kernel: tiles in registers, 32-bit integers, pointers. Layouts are ignored.

Numbers are kept as NumPy arrays, 16-bit formats as float32 that hold what the format can hold. Every
operation on a tile is work for a unit (see `timing`), and carries on which tile it works.
"""

import operator

import numpy as np
import triton.language as tl

from flashlab.problem import round_to as round_to_format
from flashlab.warpgroups.faults import OutOfBounds
from flashlab.warpgroups.machine import here

SHORT = {"fp16": "float16", "bf16": "bfloat16"}


def round_to(data, dtype):
    """`data` as `dtype` (a Triton one) would hold it."""
    if dtype.name in SHORT:
        return round_to_format(np.asarray(data, np.float32), SHORT[dtype.name]).astype(np.float32)
    kinds = {"fp32": np.float32, "fp64": np.float64, "int1": bool}
    return np.asarray(data).astype(kinds.get(dtype.name, np.int64 if dtype.name == "int64" else np.int32))


class Tile:
    """A tensor in the registers of one partition. `tile` says which tile of which tensor it came from.

    `product`: it is a product that the next addition takes up (a fused multiply-add), so it has cost nothing
    yet.
    """

    def __init__(self, data, dtype, tile=None, product=False):
        self.data, self.dtype, self.tile, self.product = np.asarray(data), dtype, tile, product

    shape = property(lambda self: list(self.data.shape))
    numel = property(lambda self: self.data.size)
    type = property(lambda self: self)  # x.type.layout, x.type.shape
    layout = property(lambda self: "a layout")
    element_ty = scalar = property(lambda self: self.dtype)

    def to(self, dtype, **how):
        return work_on("fp32", "fp32", lambda x: round_to(x, dtype), self, dtype=dtype)

    cast = to

    def __getitem__(self, key):
        return Tile(self.data[key], self.dtype, self.tile)

    def reshape(self, *shape):
        shape = shape[0] if isinstance(shape[0], tuple | list) else shape
        return Tile(self.data.reshape([int(n) for n in shape]), self.dtype, self.tile)

    def settle(self):
        """A product that no addition takes up is work of its own; returns the tile."""
        if self.product:
            self.product = False
            here().work("fp32", self.data.size, "fp32", self.tile)
        return self

    def __neg__(self):
        return work_on("fp32", "fp32", np.negative, self)

    def __invert__(self):
        return work_on("fp32", "fp32", np.invert, self)

    def __bool__(self):
        raise TypeError("a kernel cannot branch on a tile: every thread has its own elements")

    __hash__ = None


def work_on(unit, op, function, *operands, dtype=None):
    """function(*operands) on tiles and numbers, elementwise, as work of `unit`."""
    tiles = [x for x in operands if isinstance(x, Tile)]
    data = function(*(x.data if isinstance(x, Tile) else x for x in operands))
    if function in (np.add, np.subtract):  # takes one product up
        for x in [x for x in tiles if x.product][:1]:
            x.product = False
    for x in tiles:
        x.settle()
    product = function is np.multiply and data.dtype.kind == "f"
    tile = max((x.tile for x in tiles if x.tile is not None), key=freshness, default=None)
    dtype = dtype or result_type(data, tiles)
    if not product:
        here().work(unit, data.size, op, tile)
    return Tile(data, dtype, tile, product)


def freshness(tile):
    """Of the tiles that meet in an operation, the one with the highest number names the result."""
    return tile[1], tile[0]


def result_type(data, tiles):
    if data.dtype == bool:
        return tl.int1
    if data.dtype.kind == "i":
        return tl.int64 if data.dtype.itemsize == 8 and any(t.dtype == tl.int64 for t in tiles) else tl.int32
    return next(
        (t.dtype for t in tiles if t.dtype.is_floating() and t.dtype.primitive_bitwidth >= 32), tl.float32
    )


def _add_operators():
    def both(function, unit="fp32", op="fp32"):
        def forward(self, other):
            return work_on(unit, op, function, self, other)

        def backward(self, other):
            return work_on(unit, op, function, other, self)

        return forward, backward

    arithmetic = dict(
        add=np.add, sub=np.subtract, mul=np.multiply, truediv=np.divide, floordiv=_quotient, mod=_rest
    )
    arithmetic |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    for name, function in arithmetic.items():
        forward, backward = both(function, *(("exp", "1/x") if name == "truediv" else ()))
        setattr(Tile, f"__{name}__", forward)
        setattr(Tile, f"__r{name}__", backward)
    compare = dict(
        lt=np.less, le=np.less_equal, gt=np.greater, ge=np.greater_equal, eq=np.equal, ne=np.not_equal
    )
    for name, function in compare.items():
        setattr(Tile, f"__{name}__", both(function)[0])


def _quotient(a, b):
    """Towards zero, as on a GPU."""
    return np.trunc(np.divide(a, b)).astype(np.int32)


def _rest(a, b):
    return a - _quotient(a, b) * b


_add_operators()


class Int(int):
    """An integer of the kernel: division goes towards zero, as on a GPU, and not down, as in Python."""

    def to(self, dtype, **how):
        return Int(self) if dtype.is_int() else float(self)

    def __floordiv__(self, other):
        return Int(int(self / other)) if abs(self) < 2**50 else Int(super().__floordiv__(other))

    def __rfloordiv__(self, other):
        return Int(other) // self

    def __mod__(self, other):
        return Int(int(self) - int(self // other) * int(other))

    def __rmod__(self, other):
        return Int(other) % self


def _keep_ints():
    def kept(operation):
        def method(self, other):
            return Int(operation(int(self), int(other))) if isinstance(other, int) else NotImplemented

        def reflected(self, other):
            return Int(operation(int(other), int(self))) if isinstance(other, int) else NotImplemented

        return method, reflected

    names = ("add", "sub", "mul", "and_", "or_", "xor", "lshift", "rshift")
    for name in names:
        method, reflected = kept(getattr(operator, name))
        setattr(Int, f"__{name.strip('_')}__", method)
        setattr(Int, f"__r{name.strip('_')}__", reflected)
    Int.__neg__ = lambda self: Int(-int(self))
    Int.__invert__ = lambda self: Int(~int(self))


_keep_ints()


class Pointer:
    """A pointer, or a tile of pointers, into a tensor's storage. Every address is checked."""

    def __init__(self, tensor, offsets=None):
        self.tensor = tensor
        self.offsets = tensor.storage_offset() if offsets is None else offsets

    dtype = property(lambda self: self)
    element_ty = property(lambda self: getattr(tl, str(self.tensor.dtype).removeprefix("torch.")))

    def __add__(self, more):
        more = more.data.astype(np.int64) if isinstance(more, Tile) else int(more)
        return Pointer(self.tensor, self.offsets + more)

    __radd__ = __add__

    def load(self, mask, other):
        offsets, mask = self._checked("load", mask)
        values = self._flat()[np.where(mask, offsets, 0)]
        values = values.float() if values.is_floating_point() else values
        values = np.where(mask, values.detach().numpy(), 0 if other is None else other)
        if np.ndim(self.offsets):
            return Tile(round_to(values, self.element_ty), self.element_ty)
        return float(values) if self.tensor.is_floating_point() else Int(values)

    def store(self, value, mask):
        import torch

        offsets, mask = self._checked("store", mask)
        value = np.broadcast_to(value.data if isinstance(value, Tile) else value, offsets.shape)
        value = torch.from_numpy(np.ascontiguousarray(value[mask])).to(self.tensor.dtype)
        with (
            torch.inference_mode()
        ):  # a mode of the caller's thread: a tensor made in it can be written in it
            self._flat()[offsets[mask]] = value

    def _checked(self, op, mask):
        offsets = np.asarray(self.offsets)
        mask = np.broadcast_to(True if mask is None else getattr(mask, "data", mask), offsets.shape)
        size = len(self._flat())
        bad = offsets[mask & ((offsets < 0) | (offsets >= size))]
        if len(bad):
            raise OutOfBounds(f"{here().where()}: {op} of element {bad[0]} of a tensor of {size} elements")
        return offsets, mask

    def _flat(self):
        size = self.tensor.untyped_storage().nbytes() // self.tensor.element_size()
        return self.tensor.as_strided((size,), (1,), 0)
