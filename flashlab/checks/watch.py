"""Arrays that note which keys are read together, so that "a block at a time" can be checked and not only
believed.

A view (a slice, a transpose) is no read; computing with it is. Which keys a view spans follows from its
address and strides, so it does not matter how the view was made. A copy or cast of everything is no read
either, and stays watched.
"""

import contextlib
from dataclasses import dataclass, field
from unittest import mock

import numpy as np


@dataclass
class Log:
    """The reads, in order: (name of the array, sorted keys read in one operation)."""

    reads: list = field(default_factory=list)

    def most(self, name):
        """The largest number of keys of array `name` that one operation read."""
        return max((len(keys) for array, keys in self.reads if array == name), default=0)

    def visits(self, name, key):
        """How many times the reading came (back) to `key` of array `name`."""
        seen = [key in keys for array, keys in self.reads if array == name]
        return sum(now and not before for before, now in zip([False, *seen], seen, strict=False))


@dataclass
class _Tag:
    name: str
    log: Log
    start: int  # address of the first element
    labels: np.ndarray  # the key of every element, in the order of memory
    itemsize: int


def watched(array, axis, name, log):
    """A watched copy of `array`, whose keys lie along `axis`; reads go to `log` under `name`."""
    keys = np.arange(array.shape[axis]).reshape(
        [-1 if a == axis % array.ndim else 1 for a in range(array.ndim)]
    )
    return _watch(np.array(array, order="C"), np.broadcast_to(keys, array.shape), name, log)


def _watch(array, labels, name, log):
    ordered = np.empty_like(array, dtype=np.int64)
    ordered[...] = labels
    out = array.view(Watched)
    out._tag = _Tag(name, log, array.ctypes.data, ordered.ravel(order="K"), array.itemsize)
    return out


class Watched(np.ndarray):
    """See the module. Results of computations are plain arrays."""

    _tag = None

    def __array_finalize__(self, parent):
        self._tag = getattr(parent, "_tag", None)

    def _labels(self):
        """The key of every element, same shape as self; None for memory that is not the watched array's."""
        tag = self._tag
        if tag is None or self.size == 0 or self.itemsize != tag.itemsize:
            return None
        offset = (self.ctypes.data - tag.start) // tag.itemsize
        if not 0 <= offset < tag.labels.size:
            return None
        strides = [s // tag.itemsize * tag.labels.itemsize for s in self.strides]
        return np.lib.stride_tricks.as_strided(tag.labels[offset:], self.shape, strides)

    def __getitem__(self, index):
        part = super().__getitem__(index)
        if isinstance(part, Watched) and (part.size == 0 or part._labels() is not None):
            return part
        labels = self._labels()  # a scalar or a copy: read now
        if labels is not None:
            _note([(self._tag, labels[_plain(index)])])
        return _plain(part)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        _note(_tags(inputs))
        if out is not None:
            kwargs["out"] = tuple(_plain(o) for o in out)
        result = getattr(ufunc, method)(*map(_plain, inputs), **_plain(kwargs))
        return out[0] if out is not None and len(out) == 1 else result

    def __array_function__(self, function, types, args, kwargs):
        if function is np.copy:
            return args[0].copy() if args else kwargs["a"].copy()
        if function in _NO_READ:
            return super().__array_function__(function, types, args, kwargs)
        _note(_tags((args, kwargs)))
        return function(*_plain(args), **_plain(kwargs))

    def astype(self, *args, **kwargs):
        return self._same_keys(_plain(self).astype(*args, **kwargs))

    def copy(self, *args, **kwargs):
        return self._same_keys(_plain(self).copy(*args, **kwargs))

    def _same_keys(self, array):
        labels = self._labels()
        return array if labels is None else _watch(array, labels, self._tag.name, self._tag.log)

    def take(self, indices, axis=None, **kwargs):
        labels = self._labels()
        if labels is not None:
            _note([(self._tag, labels.take(_plain(indices), axis=axis))])
        return _plain(self).take(_plain(indices), axis=axis, **kwargs)


def _reading(name):
    def method(self, *args, **kwargs):
        _note(_tags((self, args, kwargs)))
        return getattr(_plain(self), name)(*_plain(args), **_plain(kwargs))

    return method


for _name in "argmax argmin argsort sort partition cumsum cumprod dot tolist tobytes item compress".split():
    setattr(Watched, _name, _reading(_name))

_NO_READ = {
    *(np.shape, np.ndim, np.size, np.result_type, np.can_cast, np.shares_memory, np.may_share_memory),
    *(np.split, np.array_split, np.hsplit, np.vsplit, np.flip, np.take, np.broadcast_to, np.broadcast_arrays),
    *(np.reshape, np.ravel, np.transpose, np.swapaxes, np.moveaxis, np.squeeze, np.expand_dims),
    *(np.atleast_1d, np.atleast_2d, np.atleast_3d, np.lib.stride_tricks.sliding_window_view),
    *(np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.iscomplexobj, np.isrealobj),
}


def _plain(value):
    """`value` with every watched array in it (also in lists, tuples, dicts) replaced by a plain view."""
    if isinstance(value, Watched):
        return value.view(np.ndarray)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def _tags(value):
    """The (tag, labels) of every watched array in `value`."""
    if isinstance(value, Watched):
        labels = value._labels()
        return [] if labels is None else [(value._tag, labels)]
    if isinstance(value, dict):
        value = list(value.values())
    return [found for v in value for found in _tags(v)] if isinstance(value, (list, tuple)) else []


def _note(found):
    """One operation reads all that it is given: join the keys by array."""
    together = {}
    for tag, labels in found:
        log, keys = together.setdefault(tag.name, (tag.log, set()))
        keys.update(np.unique(labels).tolist())
    for name, (log, keys) in together.items():
        log.reads.append((name, sorted(keys)))


@contextlib.contextmanager
def no_way_around():
    """While this lasts, np.asarray and its like keep a watched array watched (they hand out a plain one
    otherwise)."""

    def keep(original):
        def convert(*args, **kwargs):
            if not (args and isinstance(args[0], Watched)):
                return original(*args, **kwargs)
            made = original(_plain(args[0]), *args[1:], **kwargs)
            return args[0]._same_keys(made) if made.shape == args[0].shape else made

        return convert

    with contextlib.ExitStack() as stack:
        for name in ("asarray", "array", "ascontiguousarray", "asfortranarray", "require"):
            stack.enter_context(mock.patch.object(np, name, keep(getattr(np, name))))
        yield
