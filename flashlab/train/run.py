"""Train on one backend, or on two with the same seed, weights and batches, and measure how their losses part.

Two runs that round differently part, whatever the backend: a rounding in a gradient moves the weights, and
the next step starts from there. How far they may part is therefore measured in the same run: PyTorch's sdpa
against the formula (backend "naive"), which differ by nothing but rounding. `parted` allows a small factor
times that, and what one step alone can lose: each character's log-probability is off by about u, the eps of
the number format, and a loss is the mean of batch * context of them, in float32.
"""

from functools import cache
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from flashlab import data
from flashlab.train.char_model import SMALL, CharModel

FACTOR = 4  # by which one backend's rounding may lead further than another's


@cache
def text():
    """The text, a str of some 4000 characters: data/kitchen.txt, MIT like the code."""
    return Path(data.__file__).with_name("kitchen.txt").read_text(encoding="utf-8")


def batches(sizes, steps, seed=0, device="cpu"):
    """`steps` pairs (ids, next ids), each int64 [batch, context], drawn from the text; vocabulary() is their
    range.
    """
    names = {c: i for i, c in enumerate(sorted(set(text())))}
    ids = torch.tensor([names[c] for c in text()])
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        starts = torch.randint(len(ids) - sizes.context, (sizes.batch, 1), generator=generator)
        rows = ids[starts + torch.arange(sizes.context + 1)].to(device)
        yield rows[:, :-1], rows[:, 1:]


def vocabulary():
    """How many different characters the text has."""
    return len(set(text()))


def losses(backend, steps, sizes=SMALL, seed=0, device="cpu", dtype=torch.float32, rate=3e-3):
    """Train anew and yield the loss of each step (float, nats a character) before its update.

    dtype: float32, or bfloat16 for autocast over float32 weights. AdamW. Raises what attention raises.
    """
    torch.manual_seed(seed)
    model = CharModel(vocabulary(), sizes, backend).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, eps=1e-6)
    for ids, following in batches(sizes, steps, seed, device):
        with torch.autocast(torch.device(device).type, dtype, enabled=dtype != torch.float32):
            logits = model(ids)
        loss = cross_entropy(logits.float().flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield float(loss.detach())


def compare(backend, steps, sizes=SMALL, **options):
    """Yield for each step {"step", "loss", "sdpa", "naive"}: the loss on `backend` and on PyTorch's two."""
    runs = (losses(name, steps, sizes, **options) for name in (backend, "sdpa", "naive"))
    for step, (loss, sdpa, naive) in enumerate(zip(*runs, strict=True)):
        yield {"step": step, "loss": loss, "sdpa": sdpa, "naive": naive}


def parted(rows, sizes=SMALL, dtype=torch.float32):
    """{"largest", "control", "allowed"}: the largest |loss - sdpa|, |naive - sdpa|, and what is allowed."""
    largest = max(abs(row["loss"] - row["sdpa"]) for row in rows)
    control = max(abs(row["naive"] - row["sdpa"]) for row in rows)
    own = torch.finfo(dtype).eps / (sizes.batch * sizes.context) ** 0.5 + 4 * torch.finfo(torch.float32).eps
    return {
        "largest": largest,
        "control": control,
        "allowed": FACTOR * control + own * max(row["sdpa"] for row in rows),
    }
