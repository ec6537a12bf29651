"""Rows that run a few tokens behind a context, as drafts are verified: one row of the batch for each of their tokens.

Tiles of queries pay off by what they copy and reuse, from some ten queries on. Below, a query is quicker on its own:
its keys are divided among the threads, as those of any decoding row, and the caches hold them for the next one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from core.api.attention import BatchView

FEW = 8
"""Most tokens of such a row."""


def apart(batch: BatchView) -> BatchView:
    """Return a batch in which each token of a row with a few of them, and a context, is a row of its own.

    All keys of a step are stored before any layer attends, so a token sees what it would see in its row.
    """
    if batch.max_query_len == 1:
        return batch
    counts = np.diff(batch.query_starts)
    few = (counts > 1) & (counts <= FEW) & (batch.seq_lens > counts)
    if not few.any():
        return batch
    pieces = np.where(few, counts, 1)
    rows = np.repeat(np.arange(len(counts)), pieces)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    behind = np.where(few, counts - 1, 0)[rows] - place * few[rows]  # tokens of the row that follow this one
    widths = np.where(few, 1, counts)[rows]
    starts = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(widths, out=starts[1:])
    return replace(
        batch,
        query_starts=starts,
        seq_lens=(batch.seq_lens[rows] - behind).astype(np.int32),
        block_tables=batch.block_tables[torch.from_numpy(rows)],
        max_query_len=int(widths.max()),
    )
