"""The pictures that move: one class, one JavaScript file and one style sheet each, loaded when first used."""

import importlib

from flashlab.errors import unknown_name

_HOME = {
    "BlockSchedule": "block_schedule",
    "DispatchDetective": "dispatch_detective",
    "MemoryMap": "memory_map",
    "PipelineTimeline": "pipeline_timeline",
    "QuizCard": "quiz_card",
    "Roofline": "roofline",
    "SoftmaxStepper": "softmax_stepper",
    "TileBudget": "tile_budget",
    "TilePlayer": "tile_player",
}

__all__ = sorted(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(f"flashlab.widgets.{_HOME[name]}"), name)
    raise AttributeError(str(unknown_name("widget", name, __all__)))


def __dir__():
    return sorted([*globals(), *__all__])
