"""Which memory a kernel touches: is every address inside a tensor that it was given, which bytes moved, do
two programs race?

Nothing here knows Triton. `flashlab.interpreter` reports each load, store and barrier of a launch to a list
of observers; the classes of this module are those observers.
"""

import math

import numpy as np

TAG_BITS = np.uint64(48)
ADDRESS = np.uint64((1 << 48) - 1)
NOBODY, MANY = -1, -2  # who touched an address, where it is not one program's number


class OutOfBounds(Exception):
    """A kernel is about to touch memory that is not part of the tensor whose pointer it used."""


class RaceError(Exception):
    """Two programs, or two threads of one program, may meet at one address."""


class Argument:
    """One tensor argument of a launch, as memory: its name, first address, sizes and strides in elements."""

    def __init__(self, name, start, itemsize, shape, strides):
        self.name = name.removesuffix("_ptr")
        self.start, self.itemsize = start, itemsize
        self.shape, self.strides = tuple(shape), tuple(strides)
        numel = math.prod(self.shape)
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)) if numel else -1
        self.nbytes = (last + 1) * itemsize
        # Axes from the widest stride to the narrowest; stride 0 (an expanded axis) adds no address.
        axes = sorted(
            ((s, n) for s, n in zip(self.strides, self.shape, strict=True) if n > 1 and s), reverse=True
        )
        nested = all(wide >= s * n for (wide, _), (s, n) in zip(axes, axes[1:], strict=False))
        dense = numel * itemsize == self.nbytes
        self.axes = axes if nested and not dense else []

    def fault(self, addresses, itemsize):
        """What is wrong with `addresses` (uint64, not empty), each of an element of `itemsize` bytes: a
        phrase, or None.
        """
        first, end = int(addresses.min()), int(addresses.max()) + itemsize
        if end > self.start + self.nbytes:
            return f"ends {end - self.start - self.nbytes} bytes past it"
        if first < self.start:
            return f"starts {self.start - first} bytes before it"
        rest, between = (addresses - np.uint64(self.start)) // np.uint64(self.itemsize), False
        for stride, size in self.axes:
            index, rest = np.divmod(rest, np.uint64(stride))
            between = between or bool((index >= size).any())
        if self.axes and (between or rest.any()):
            return f"falls between its elements (shape {list(self.shape)}, strides {list(self.strides)})"
        return None


class AddressSpace:
    """The tensors of a launch. A pointer carries the number of its tensor in its top 16 bits, which no real
    address uses; all pointer arithmetic keeps it, so that each access says which tensor it meant.
    """

    def __init__(self):
        self.arguments, self.numbers = [], {}

    def add(self, name, tensor):
        """Take in a torch tensor. Raises TypeError for formats in which the interpreter cannot compute."""
        if str(tensor.dtype) == "torch.bfloat16" or "float8" in str(tensor.dtype):
            raise TypeError(
                f"{name} is {tensor.dtype}: Triton's interpreter computes on its bit patterns, which gives "
                "garbage. Pass float32 (or float16) here"
            )
        start, size = tensor.data_ptr(), tensor.element_size()
        self.arguments.append(Argument(name, start, size, tensor.shape, tensor.stride()))
        self.numbers[id(tensor)] = len(self.arguments)

    def tag(self, tensor, pointer):
        """`pointer` (uint64), which points into `tensor`, with the tensor's number."""
        return pointer | (np.uint64(self.numbers.get(id(tensor), 0)) << TAG_BITS)

    def touch(self, op, pointers, mask, itemsize, program, observers):
        """Check the active lanes of an access, tell the observers, and return real addresses."""
        pointers = np.asarray(pointers)
        active = pointers[np.broadcast_to(np.asarray(mask, bool), pointers.shape)]
        addresses, tags = active & ADDRESS, active >> TAG_BITS
        for tag in np.unique(tags):
            mine = addresses[tags == tag]
            if not 1 <= tag <= len(self.arguments):
                raise OutOfBounds(f"{op} at an address that belongs to no argument of the kernel")
            argument = self.arguments[int(tag) - 1]
            fault = argument.fault(mine, itemsize)
            if fault:
                way = {"load": "load from", "store": "store to", "atomic": "atomic update of"}[op]
                raise OutOfBounds(f"{way} {argument.name} {fault}: mask missing?")
            for observer in observers:
                observer.access(program, op, argument, mine, itemsize)
        return pointers & ADDRESS


class Recorder:
    """Writes down every load and store as (program, op, name, bytes): distinct bytes of unmasked lanes."""

    def __init__(self, names=None):
        self.names, self.rows = names or {}, []

    def launch(self):
        pass

    def access(self, program, op, argument, addresses, itemsize):
        name = self.names.get(argument.start, argument.name)
        self.rows.append(
            (program, op, name, len(np.unique(addresses)) * itemsize, tile_of(argument, addresses))
        )

    def barrier(self, program):
        pass


def tile_of(argument, addresses):
    """The first element that an access touches, as an index into its tensor (for pictures)."""
    if not len(addresses) or not argument.shape:
        return ()
    rest, index = (int(addresses.min()) - argument.start) // argument.itemsize, [0] * len(argument.shape)
    for axis in sorted(range(len(index)), key=lambda a: -argument.strides[a]):
        if argument.strides[axis] and argument.shape[axis] > 1:
            index[axis], rest = divmod(rest, argument.strides[axis])
    return tuple(index)


class RaceFinder:
    """Finds what the interpreter hides because it runs one program after another, and each as one thread.

    `found` lists, as sentences: a program that reads what it stored since its last barrier (another of its
    threads may not have stored yet), and two programs that touch one address where one writes. Atomic
    operations may meet each other.
    """

    def __init__(self):
        self.found, self.epoch, self.memory = [], 0, {}

    def launch(self):
        """A new kernel starts when the one before has ended: nothing of that one can race with it."""
        self.memory, self.current, self.numbers = {}, None, {}

    def barrier(self, program):
        self.epoch += 1

    def access(self, program, op, argument, addresses, itemsize):
        # One table for each stretch of memory: writer, reader and atomic user of an element, by its first
        # byte.
        table, index = self.table(argument, addresses)
        me = self.number(program)
        writer, reader, atomic, stored = (table[k][index] for k in ("writer", "reader", "atomic", "stored"))
        others = ((writer != NOBODY) & (writer != me)) | (op != "atomic") * (
            (atomic != NOBODY) & (atomic != me)
        )
        if op != "load":
            others |= (reader != NOBODY) & (reader != me)
        if others.any():
            where = f"{int(others.sum()) * itemsize} bytes of {argument.name}"
            self.say(f"program {program} and another touch the same {where}, and one writes")
        if op == "load" and (stored == self.epoch).any():
            count = int((stored == self.epoch).sum()) * itemsize
            self.say(
                f"program {program} reads {count} bytes of {argument.name} that it stored since its last "
                "barrier: tl.debug_barrier() missing?"
            )
        if op == "load":
            table["reader"][index] = np.where((reader == NOBODY) | (reader == me), me, MANY)
        elif op == "store":
            table["writer"][index], table["stored"][index] = me, self.epoch
        else:
            table["atomic"][index] = np.where((atomic == NOBODY) | (atomic == me), me, MANY)

    def table(self, argument, addresses):
        start, end = argument.start, argument.start + argument.nbytes
        around = [known for known in self.memory if known[0] <= start and end <= known[1]]
        known = around[0] if around else (start, end)
        if not around:
            names = ("writer", "reader", "atomic", "stored")
            self.memory[known] = {name: np.full(argument.nbytes, NOBODY, np.int64) for name in names}
        return self.memory[known], (addresses - np.uint64(known[0])).astype(np.int64)

    def number(self, program):
        """A program as one number. A new one starts with a clean slate: its stores are all still to come."""
        if self.current != program:
            self.current, self.epoch = program, self.epoch + 1
            self.numbers.setdefault(program, len(self.numbers))
        return self.numbers[program]

    def say(self, sentence):
        if sentence not in self.found:
            self.found.append(sentence)
