"""The compact form of the suite `dispatch`: what many calls have in common is written once, at the top.

A record has thousands of calls and a hundred kernels with names of a thousand letters. `compact` keeps of the
kernels those that compute attention, by short names, and puts what repeats into tables, so that a row holds
its index there. `expand` gives the full row back, with the kernels that were kept. h200_dispatch.json was
measured before there was this form; `compact` brought its rows into it.
"""

import re

REPEATED = ("order", "no", "kernels", "refused")  # the keys of a row that hold an index into a table
FORWARD = re.compile(r"fprop|_fwd_|fmha_cutlassF|lean_reduction|softmax\w*forward", re.IGNORECASE)
BACKWARD = re.compile(
    r"bprop|_bwd_|fmha_cutlassB|dot_do_o|convert_dq|fmha_reduce_head|softmax\w*backward", re.IGNORECASE
)


def new_tables():
    """Empty tables, for `compact` to fill."""
    return {name: [] for name in REPEATED}


def compact(row, tables):
    """The row with an index wherever its value stands in `tables`, which grow by what is new.

    row["kernels"], all names in the order in which they ran, becomes the short names of attention's own,
    under "forward", "backward" and "either" (the math path's matrix products in a call with a backward).
    """
    short = dict(row)
    short.pop("device", None)  # said once for all rows
    if "kernels" in row:
        short["kernels"] = parts(row["kernels"], row["call"].get("requires_grad", False))
    for name in REPEATED:
        if name in short:
            short[name] = place(tables[name], short[name])
    return short


def place(table, value):
    """Where the value stands in the table (a list), which grows by it if it is new."""
    if value not in table:
        table.append(value)
    return table.index(value)


def expand(row, record):
    """The row of a record as it was before `compact`, but for the kernels' names."""
    full = {name: record["tables"][name][value] if name in REPEATED else value for name, value in row.items()}
    return {"device": record["device"], **full}


def parts(names, trained):
    """{"forward": [...], ...}: attention's own kernels by their short names, each once; empty parts left out.

    trained: was there a backward, so that a kernel whose name says neither can belong to it?
    """
    found = {"forward": [], "backward": [], "either": []}
    for name in names:
        if computes_attention(name):
            by_name = "backward" if BACKWARD.search(name) else "forward" if FORWARD.search(name) else None
            part = found[by_name or ("either" if trained else "forward")]
            if short_name(name) not in part:
                part.append(short_name(name))
    return {part: kept for part, kept in found.items() if kept}


def computes_attention(name):
    """Is it a fused kernel, a matrix product or a softmax? PyTorch's others copy, fill, sum or mask."""
    return not re.search(r"at::(native|cuda)::", name) or "softmax" in name.lower()


def short_name(name):
    """What identifies a kernel: its name without types and parameters; of flash-attn's also D and the tile.

    >>> short_name("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 64, 4> >(int)")
    'pytorch_flash::flash_fwd_kernel<64, 128, 64>'
    """
    name = re.sub(r"^void |^std::enable_if<.*?>::type |\(anonymous namespace\)::", "", name)
    wrapped = re.match(r"cutlass::Kernel2<(\w+)>", name)
    if wrapped:
        return wrapped[1]
    tile = re.search(r"kernel_traits<(\d+), (\d+), (\d+)", name)
    return re.match(r"[\w:]+", name)[0] + (f"<{', '.join(tile.groups())}>" if tile else "")
