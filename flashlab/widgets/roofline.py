"""`Roofline`: the problem's algorithms under a GPU's roofs, with what was measured laid over.

The numbers are those of `flashlab.memory.traffic`; flows_numbers.js repeats them so that every choice works
without Python, and a test holds the two together.
"""

import traitlets

from flashlab import bench
from flashlab.errors import unknown_name
from flashlab.widgets.sizes import SizesWidget

LEVELS = ("hbm", "sm")
DIRECTIONS = ("forward", "backward")
COLUMNS = ("dtype", "D", "N", "causal", "B", "H", "direction", "peer", "tflops")


class Roofline(SizesWidget):
    """Open it with `Roofline.of(problem, gpu="H200", direction="forward", level="hbm")`.

    level: which bytes count, those that the GPU's L2 lets through to HBM ("hbm") or all that programs ask for
    ("sm", the papers' count on a GPU without L2). `measured` holds the kept measurements: by default all
    records of the suite "kernels" (`flashlab.bench.recorded`); pass a list of records for your own.
    """

    text_area = "roofline"
    esm_first = ("quantities.js", "panel.js", "flows_numbers.js", "roofline_numbers.js")
    twin_height = 760

    direction = traitlets.Unicode("forward").tag(sync=True)
    level = traitlets.Unicode("hbm").tag(sync=True)
    measured = traitlets.List().tag(sync=True)  # [{gpu, date, versions, columns, rows}]

    @classmethod
    def checked(cls, options):
        options = {"measured": None, **super().checked(options)}
        for name, known in (("direction", DIRECTIONS), ("level", LEVELS)):
            if options.get(name, known[0]) not in known:
                raise unknown_name(name, options[name], known)
        records = options["measured"]
        options["measured"] = measurements(bench.recorded("kernels") if records is None else records)
        return options


def measurements(records):
    """Records of the suite "kernels" in the short form that the widget reads; rows without a time are left
    out. Raises ValueError for a record in another form.
    """
    found = []
    for record in records:
        try:
            origin, rows = record["provenance"], [r for r in record["rows"] if "tflops" in r]
            versions = [f"{name} {origin[name]}" for name in ("torch", "triton", "driver")]
            found.append(
                {
                    "gpu": str(origin["gpu"]),
                    "date": str(origin["date"])[:10],
                    "versions": ", ".join(versions),
                    "columns": list(COLUMNS),
                    "rows": [[row[c] for c in COLUMNS] for row in rows],
                }
            )
        except (KeyError, TypeError) as error:
            raise ValueError(
                "expected records with provenance and rows, as `flashlab bench kernels` writes them; "
                f"missing: {error}"
            ) from None
    return found
