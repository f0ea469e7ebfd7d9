"""From a @gluon.jit function to a Python function that does the same in the simulator. Triton is not changed.

The function's code stays as it is; only the names that it looks up lead elsewhere: Gluon's functions to those
of `language`, other kernel functions to their own translations.
"""

import inspect
import types

from triton.experimental.gluon.language import _layouts
from triton.language.core import constexpr, static_range
from triton.runtime.jit import JITFunction

from flashlab.warpgroups.language import SUBSET
from flashlab.warpgroups.names import KERNEL_CODE
from flashlab.warpgroups.tiles import Int


def counted(*bounds):
    """range() whose numbers are those of a kernel."""
    return map(Int, range(*bounds))


class Translation:
    """The translations of one launch: each function once."""

    def __init__(self):
        self.functions = {}

    def function(self, jit):
        """The Python function for a @gluon.jit (or @triton.jit) function."""
        if jit in self.functions:
            return self.functions[jit]
        original = jit.fn
        names = {}
        twin = types.FunctionType(original.__code__, names, original.__name__, original.__defaults__)
        twin.__kwdefaults__ = original.__kwdefaults__
        self.functions[jit] = twin  # before its names: functions may call each other
        KERNEL_CODE.add(original.__code__)
        if original.__closure__:
            cells = tuple(types.CellType(self.value(c.cell_contents)) for c in original.__closure__)
            self.functions[jit] = twin = types.FunctionType(
                original.__code__, names, original.__name__, original.__defaults__, cells
            )
        names |= {name: self.value(v) for name, v in looked_up(original).items()}
        names["range"] = counted
        return twin

    def value(self, value):
        """What a name of the kernel stands for in the simulator."""
        if isinstance(value, types.ModuleType):
            return _Module(value, self)
        if isinstance(value, constexpr):
            return value.value
        if value is constexpr:
            return lambda x: x
        if value is static_range:
            return counted
        if inspect.isclass(value) and issubclass(value, _layouts.DistributedLayout | _layouts.SharedLayout):
            return _Layout(value)
        if isinstance(value, JITFunction):
            known = SUBSET.get(full_name(value.fn))
            return known or self.function(value)
        if getattr(value, "__triton_builtin__", False) and not inspect.isclass(value):
            return SUBSET.get(full_name(value)) or _unknown(value)
        if isinstance(value, tuple):
            return tuple(self.value(v) for v in value)
        return value


def looked_up(function):
    """The globals that a function's code names, with their values."""
    codes, found = [function.__code__], {}
    while codes:
        code = codes.pop()
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        found |= {n: function.__globals__[n] for n in code.co_names if n in function.__globals__}
    return found


def full_name(function):
    """ "mbarrier.wait": the end of a function's module, and its name."""
    return f"{function.__module__.rpartition('.')[2].lstrip('_')}.{function.__name__}"


class _Module:
    """A module of the kernel, seen through a translation."""

    def __init__(self, module, translation):
        self.__dict__["_module"], self.__dict__["_translation"] = module, translation

    def __getattr__(self, name):
        return self._translation.value(getattr(self._module, name))


class _Layout:
    """A layout class: layouts mean nothing here, so that making one gives its name."""

    def __init__(self, layout):
        self.layout = layout

    def __call__(self, *args, **kwargs):
        return self.layout.__name__

    def __getattr__(self, name):  # MBarrierLayout.multicta, NVMMASharedLayout.get_default_for
        return self


def _unknown(builtin):
    def missing(*args, **kwargs):
        raise NotImplementedError(f"the simulator of warpgroups does not know {full_name(builtin)}")

    return missing
