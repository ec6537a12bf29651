"""Attention to compressed entries, and pickers of entries, one sequence after the other, by definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from core.api.attention import AttentionPlan, BatchView, CompressedSite, PickSite

if TYPE_CHECKING:
    from collections.abc import Sequence


class PlainCompressed:
    """Attention to the entries of one layer. A plan is the batch itself."""

    def __init__(self, site: CompressedSite, block_size: int) -> None:
        self._site, self._block_size = site, block_size

    def write(self, entries: Tensor, kv: Tensor, plan: AttentionPlan) -> None:
        """Store the entries that are complete."""
        store_entries(entries, kv, cast(BatchView, plan), self._site.ratio)

    def forward(self, q: Tensor, kv: Tensor, plan: AttentionPlan, picked: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return `(tokens, heads, head_dim)` and `(tokens, heads)`, both float32."""
        parts = []
        for begin, end, length, entries in entries_of(kv, cast(BatchView, plan), self._site.ratio, self._block_size):
            hidden = unseen_entries(length, end - begin, self._site.ratio, len(entries)).to(q.device)
            if picked is not None:
                hidden |= unpicked(picked[begin:end], len(entries))
            parts.append(attend_to_entries(q[begin:end], entries, hidden, self._site.scale))
        return torch.cat([found for found, _ in parts]), torch.cat([sums for _, sums in parts])


class PlainEntryPicker:
    """The entries of the best index scores."""

    def __init__(self, site: PickSite, block_size: int) -> None:
        self._site, self._block_size = site, block_size

    def write(self, key: Tensor, kv: Tensor, plan: AttentionPlan) -> None:
        """Store the index keys of entries that are complete."""
        store_entries(key, kv, cast(BatchView, plan), self._site.ratio)

    def forward(self, q: Tensor, weights: Tensor, kv: Tensor, plan: AttentionPlan) -> Tensor | None:
        """Return picked entries, `(tokens, picks)` int32."""
        parts, most = [], self._site.picks
        for begin, end, length, keys in entries_of(kv, cast(BatchView, plan), self._site.ratio, self._block_size):
            scores = entry_scores(q[begin:end], weights[begin:end], keys, self._site, length)
            best, places = scores.topk(min(most, len(keys)), dim=1)
            found = places.int().masked_fill(best == -torch.inf, -1)
            parts.append(pad(found, (0, most - found.shape[1]), value=-1))
        return torch.cat(parts)


def store_entries(entries: Tensor, kv: Tensor, batch: BatchView, ratio: int) -> None:
    """Write entries `(tokens, size)` of the last of each `ratio` tokens to a cache `(blocks, entries, size)`."""
    last = (batch.slots + 1) % ratio == 0  # blocks begin at multiples of it
    kv.flatten(0, 1)[batch.slots[last] // ratio] = entries[last].to(kv.dtype)


def entries_of(kv: Tensor, batch: BatchView, ratio: int, block_size: int) -> Iterator[tuple[int, int, int, Tensor]]:
    """Yield where each row begins and ends in the step, its tokens, and its complete entries `(entries, size)`."""
    bounds: Sequence[int] = batch.query_starts.tolist()
    for begin, end, length, table in zip(bounds, bounds[1:], batch.seq_lens.tolist(), batch.block_tables):
        blocks = table[: -(-length // block_size)].long()
        yield begin, end, length, kv[blocks].flatten(0, 1)[: length // ratio].float()


def unseen_entries(length: int, queries: int, ratio: int, entries: int) -> Tensor:
    """Return which entries the last tokens of a row do not see, `(queries, entries)` bool."""
    positions = torch.arange(length - queries, length)[:, None]
    return torch.arange(entries)[None] >= (positions + 1) // ratio


def unpicked(picked: Tensor, entries: int) -> Tensor:
    """Return which entries are not among `picked (queries, picks)`, `(queries, entries)` bool."""
    hidden = torch.ones(len(picked), entries + 1, dtype=torch.bool, device=picked.device)
    return hidden.scatter_(1, torch.where(picked < 0, entries, picked).long(), value=False)[:, :entries]


def attend_to_entries(q: Tensor, entries: Tensor, hidden: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return means `(queries, heads, size)`, and logarithms of sums; `hidden (queries, entries)` is not seen."""
    scores = torch.einsum("qhd,ed->qhe", q.float(), entries.float()) * scale
    scores = scores.masked_fill(hidden[:, None], -torch.inf)
    # Of a query that sees none every share would be 0 / 0.
    shares = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("qhe,ed->qhd", shares, entries.float()), scores.logsumexp(-1)


def entry_scores(q: Tensor, weights: Tensor, keys: Tensor, site: PickSite, length: int) -> Tensor:
    """Return the scores of a picker, `(queries, entries)` in float32 at least; -inf of what is not seen.

    Shapes: `q (queries, heads, key_dim)`, `weights (queries, heads)` of the last tokens of `length`, `keys (entries,
    key_dim)`.
    """
    dtype = torch.promote_types(q.dtype, torch.float32)
    products = torch.einsum("qhd,ed->qhe", q.to(dtype), keys.to(dtype)) * site.scale
    scores = torch.einsum("qh,qhe->qe", weights.to(dtype), products.relu())
    return scores.masked_fill(unseen_entries(length, len(q), site.ratio, len(keys)).to(q.device), -torch.inf)
