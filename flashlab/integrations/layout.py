"""Which keys a row may see, in the words that flashlab's calls understand: causal, lengths, packed sequences.

Transformers describes a mask as a function (batch, head, query, key) -> bool and a padding mask [B, Nk], once
for a forward pass. `read_mask` turns both into a `Layout` without ever holding an [Nq, Nk] matrix, and raises
where a mask is of a kind that flashlab's calls do not have.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

ROWS_AT_ONCE = 128  # a mask function is compared on so many query rows at a time
NO_MATRIX = (
    "this model computes with its mask, a bias is added to it, say; flashlab's mask is a description, not a "
    'tensor, and its attention has no bias: use attn_implementation="sdpa"'
)


@dataclass
class Packed:
    """Rows of padded tensors [B, N, ...] that are real, as sequences one after another.

    q_rows (entry, row) and k_rows: two int64 tensors each; cu_seqlens_q and _k: int32 [sequences + 1].
    """

    q_rows: tuple[Tensor, Tensor]
    k_rows: tuple[Tensor, Tensor]
    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor


@dataclass
class Layout:
    """What the rows of a [B, H, Nq, D] may see of [B, H, Nk, D].

    causal: None, "top-left" or "bottom-right". Either all keys are real, or the first lengths[b] (int32 [B]),
    or those that `packed` names; segmented: several sequences of one row. in_cache: the queries are the last
    of more tokens. real: which keys are no padding, bool [B, Nk], or None if all.
    """

    num_queries: int
    num_keys: int
    causal: str | None
    lengths: Tensor | None = None
    packed: Packed | None = None
    segmented: bool = False
    in_cache: bool = False
    real: Tensor | None = None
    ndim: int = field(default=4, repr=False)  # transformers hands a mask of four axes on as it is
    _seen: Tensor | None = field(default=None, repr=False)
    _table: tuple | None = field(default=None, repr=False)

    def no_matrix(self, *_):
        """Raises TypeError that says why this is no tensor, where a model takes it for one."""
        raise TypeError(NO_MATRIX)

    __add__ = __radd__ = __mul__ = __rmul__ = __getitem__ = __invert__ = no_matrix

    def __getattr__(self, name):
        raise AttributeError(f"no {name} here: {NO_MATRIX}" if hasattr(Tensor, name) else name)

    def with_positions(self, positions):
        """This layout, or one of packed sequences where position_ids [1 or B, Nq] begin anew within a row.

        Transformers looks at positions only where there is neither a cache nor a padding mask: packed rows of
        a model called with use_cache=True, its default, see each other with "sdpa".
        """
        if positions is None or positions.dim() != 2 or positions.shape[-1] != self.num_queries:
            return self
        if self._seen is positions or self.segmented or self.in_cache or self.num_queries != self.num_keys:
            return self
        self._seen = positions
        batch = self.real.shape[0] if self.real is not None else positions.shape[0]
        segments = segments_by_position(positions.expand(batch, -1), self.real)
        if segments is None:
            return self
        real = torch.ones_like(segments, dtype=torch.bool) if self.real is None else self.real
        self.packed, self.lengths, self.segmented = pack(real, segments), None, True  # for all layers to come
        return self

    def token_table(self):
        """(positions int32 [B, most], lengths int32 [B]) of the real keys of each entry, in order."""
        if self._table is None:
            lengths = self.real.sum(1, dtype=torch.int32)
            order = torch.argsort(self.real.logical_not().to(torch.int8), dim=1, stable=True)
            self._table = order[:, : int(lengths.max())].to(torch.int32), lengths
        return self._table


def read_mask(
    batch_size, kv_length, q_length=None, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None,
    use_vmap=False, cache_position=None, device=None, **_,
):  # fmt: skip
    """The Layout of one forward pass; the signature is that of transformers' mask functions.

    Raises NotImplementedError for masks that are neither causal nor full, nor that within packed sequences.
    """
    if isinstance(attention_mask, Layout):  # made in advance, as generate() does for a static cache
        return attention_mask
    if cache_position is not None:  # transformers before 5.3
        q_length, q_offset = len(cache_position), cache_position[0]
    if use_vmap:
        refuse_mask("the model adds a mask function of its own")
    offset = int(q_offset) - kv_offset  # query i stands where key i + offset does
    causal, segments = kind_of(mask_function, batch_size, q_length, kv_length, offset, kv_offset, device)
    used = min(offset + q_length, kv_length) if causal else kv_length  # a static cache has empty slots
    real = padding_of(attention_mask, batch_size, kv_offset, kv_length)
    if used < kv_length:
        real = torch.ones(batch_size, kv_length, dtype=torch.bool, device=device) if real is None else real
        real = real & (torch.arange(kv_length, device=real.device) < used)
    layout = Layout(q_length, kv_length, None, real=real, in_cache=causal and offset > 0)
    if segments is not None:
        layout.causal, layout.segmented = "top-left" if causal else None, True
        layout.packed = pack(torch.ones_like(segments, dtype=torch.bool) if real is None else real, segments)
        return layout
    if causal and q_length > 1:
        layout.causal = "bottom-right" if offset else "top-left"
    if real is None or bool(real.all()):
        layout.real = None
        return layout
    lengths = real.sum(1, dtype=torch.int32)
    first = torch.arange(kv_length, device=real.device) < lengths[:, None]
    aligned = layout.causal != "bottom-right" or bool((lengths == used).all())
    if aligned and bool((real == first).all()):
        layout.lengths = lengths
    else:
        own = real[:, offset : offset + q_length] if causal else None
        layout.packed = pack(real, queries=own, num_queries=q_length)
    return layout


def kind_of(mask_function, batch, num_queries, num_keys, offset, kv_offset, device):
    """(causal, segments int64 [B, N] or None) of a mask function: one of two known ones, or compared."""
    from transformers import masking_utils as known

    if mask_function in (None, known.causal_mask_function):
        return True, None
    if mask_function is known.bidirectional_mask_function:
        return False, None
    entries = torch.arange(batch, device=device)[:, None]
    rows = torch.arange(num_queries, device=device)
    head = torch.zeros((), dtype=torch.int64, device=device)

    def see(rows, keys):
        entry = entries.view(-1, *[1] * rows.dim())
        seen = mask_function(entry, head, rows + offset + kv_offset, keys + kv_offset)
        return seen.expand(batch, *torch.broadcast_shapes(rows.shape, keys.shape))

    keys = torch.arange(num_keys, device=device)[None]
    segments = None
    if num_queries == num_keys and num_queries > 1 and offset == 0:
        starts = ~see(rows[1:], rows[:-1])
        segments = torch.nn.functional.pad(starts.cumsum(1), (1, 0))
    later = torch.arange(offset + 1, num_keys, device=device)
    causal = later.numel() == 0 or not bool(see(rows[:1], later).any())
    for start in range(0, num_queries, ROWS_AT_ONCE):
        some = rows[start : start + ROWS_AT_ONCE, None]
        want = keys <= some + offset if causal else torch.ones_like(keys <= some)
        if segments is not None:
            want = want & (segments[:, some[:, 0]][:, :, None] == segments[:, None, :])
        if not bool((see(some, keys) == want).all()):
            refuse_mask("this one hides other keys than those behind a row or in other packed sequences")
    return causal, segments if segments is not None and bool(segments[:, -1].any()) else None


def refuse_mask(what):
    raise NotImplementedError(
        "flashlab attends to all keys, to those up to a row (causal), and within packed or padded sequences; "
        f"{what}. Sliding windows shorter than the keys, chunks, prefixes and biases: use "
        'attn_implementation="sdpa" or "flex_attention"'
    )


def padding_of(mask, batch, kv_offset, num_keys):
    """bool [B, num_keys], True for real keys, from a padding mask [B, at least or fewer keys]; or None."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dim() != 2 or mask.shape[0] != batch:
        got = list(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"expected attention_mask to be a padding mask [{batch}, keys], got {got}")
    mask = mask.bool()[:, kv_offset : kv_offset + num_keys]
    return torch.nn.functional.pad(mask, (0, num_keys - mask.shape[1]))


def segments_by_position(positions, real=None):
    """int64 [B, N]: which sequence of its row each token is in, where positions begin anew; None if all are
    one. Tokens that are not `real` belong to the sequence before them and reset nothing.
    """
    at = torch.arange(positions.shape[1], device=positions.device).expand_as(positions)
    real = torch.ones_like(positions, dtype=torch.bool) if real is None else real
    last_real = torch.where(real, at, -1).cummax(1).values
    before = torch.nn.functional.pad(last_real[:, :-1], (1, 0), value=-1)  # the real token before this one
    resets = real & (before >= 0) & (positions <= positions.gather(1, before.clamp(min=0)))
    return resets.cumsum(1) if bool(resets.any()) else None


def pack(real, segments=None, queries=None, num_queries=None):
    """The Packed of real keys, bool [B, Nk]. The queries are the same tokens (segments, or nothing else
    given), those marked in `queries` [B, Nq], or all num_queries of each entry.
    """
    k_rows = real.nonzero(as_tuple=True)
    if segments is not None:
        name = k_rows[0] * (segments.shape[1] + 1) + segments[k_rows]
        counts = torch.unique_consecutive(name, return_counts=True)[1]
        bounds = cumulative(counts)
        return Packed(k_rows, k_rows, bounds, bounds)
    if queries is None:
        queries = real.new_ones(real.shape[0], num_queries)
    return Packed(queries.nonzero(as_tuple=True), k_rows, cumulative(queries.sum(1)), cumulative(real.sum(1)))


def from_bounds(cu_seqlens_q, cu_seqlens_k):
    """The Packed of one row that holds sequences with these bounds, int32 [sequences + 1]."""

    def rows(bounds):
        row = torch.arange(int(bounds[-1]), device=bounds.device)
        return torch.zeros_like(row), row

    bounds = cu_seqlens_q.to(torch.int32), cu_seqlens_k.to(torch.int32)
    return Packed(rows(bounds[0]), rows(bounds[1]), *bounds)


def cumulative(counts):
    """int32 bounds [n + 1] of counts [n]."""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)
