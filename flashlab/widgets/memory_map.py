"""`MemoryMap`: what attention keeps in memory for N tokens, tensor by tensor, and where a GPU's memory ends.

The bytes are those of `flashlab.needs`; memory_numbers.js repeats them so that every choice works without
Python, and a test holds the two together.
"""

import traitlets

from flashlab.widgets.sizes import SizesWidget


class MemoryMap(SizesWidget):
    """Open it with `MemoryMap.of(problem, gpu="H200", layers=1, dropout=0.0, training=True)`.

    layers: how many layers keep their tensors at once. dropout: probability, from 0 to below 1; only in
    training.
    training: what forward keeps for backward (True) or the KV cache and one layer's work (False).
    `problem["Nk"]` is the N that the reader chose.
    """

    text_area = "memory_map"
    esm_first = ("quantities.js", "panel.js", "memory_numbers.js")
    twin_height = 900

    layers = traitlets.Int(1).tag(sync=True)
    dropout = traitlets.Float(0.0).tag(sync=True)
    training = traitlets.Bool(True).tag(sync=True)

    @classmethod
    def checked(cls, options):
        options = super().checked(options)
        layers, dropout = options.get("layers", 1), options.get("dropout", 0.0)
        if isinstance(layers, bool) or not isinstance(layers, int) or layers < 1:
            raise ValueError(f"expected layers to be a whole number from 1, got {layers!r}")
        if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
            raise ValueError(f"expected dropout from 0 to below 1, got {dropout!r}")
        if not isinstance(options.get("training", True), bool):
            raise TypeError(f"expected training to be True or False, got {options['training']!r}")
        return options
