"""The widgets' pictures as stills, for print, slides and people who prefer them.

Each function returns a `Still`: a matplotlib Figure (no pyplot, no state) whose `alt` says in words what it
shows. `figure.savefig("x.svg")` saves it; as the last value of a cell it is shown.
"""

from flashlab.figures.models import memory_map, roofline
from flashlab.figures.on_chip import block_schedule, tile_budget, tile_player
from flashlab.figures.pipeline import pipeline_timeline
from flashlab.figures.still import Still, alt_text

__all__ = ["Still", "alt_text", "block_schedule", "memory_map", "pipeline_timeline", "roofline"]
__all__ += ["tile_budget", "tile_player"]
