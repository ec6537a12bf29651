"""Step inputs: what one forward pass reads, gathered from the rows anew for every step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.api.attention import AttentionBackend, AttentionPlan, BatchView
from core.engine.step import StepPlan
from core.worker.rows import RowTable


@dataclass(slots=True)
class StepInputs:
    """`core.api.models.StepInputs`, and what the runner needs around the forward pass. Nobody changes it.

    Attributes:
        token_ids, positions: `(tokens,)` int64 on the device.
        plan: The attention backend's plan.
        batch: The batch as attention sees it.
        logit_indices: `(samples.sum(),)` int64 on the device, the token that each sampled row samples from.
    """

    token_ids: Tensor
    positions: Tensor
    plan: AttentionPlan
    batch: BatchView
    logit_indices: Tensor


def build_inputs(step: StepPlan, rows: RowTable, backend: AttentionBackend) -> StepInputs:
    """Gather one step's inputs; host work is a handful of array operations whatever the batch."""
    counts = step.counts.astype(np.int64)
    query_starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=query_starts[1:])
    offsets = step.starts - query_starts[:-1]
    positions = rows.to_device(np.arange(query_starts[-1]) + np.repeat(offsets, counts))
    token_rows = rows.to_device(np.repeat(step.rows, counts))
    batch = _view(step, rows, query_starts, positions, token_rows)
    return StepInputs(
        token_ids=rows.tokens[token_rows, positions].long(),
        positions=positions,
        plan=backend.plan(batch),
        batch=batch,
        logit_indices=rows.to_device(query_starts[1:][step.samples] - 1),
    )


def _view(step: StepPlan, rows: RowTable, query_starts: np.ndarray, positions: Tensor, token_rows: Tensor) -> BatchView:
    size = rows.block_size
    seq_lens = (step.starts + step.counts).astype(np.int32)
    blocks = torch.div(positions, size, rounding_mode="floor")
    slots = rows.block_tables[token_rows, blocks].long() * size + positions % size
    return BatchView(
        query_starts=query_starts.astype(np.int32),
        seq_lens=seq_lens,
        block_tables=_tables(step, rows, seq_lens),
        slots=slots,
        max_query_len=int(step.counts.max()),
        max_seq_len=int(seq_lens.max()),
    )


def _tables(step: StepPlan, rows: RowTable, seq_lens: np.ndarray) -> Tensor:
    """Return the scheduled rows' tables; entries past a row's own blocks are 0, whatever an earlier life left there."""
    needed = -(-seq_lens // rows.block_size)
    width = int(needed.max())
    tables = rows.block_tables[:, :width].index_select(0, rows.to_device(step.rows))
    unused = np.arange(width) >= needed[:, None]
    return tables.masked_fill_(torch.from_numpy(unused).to(rows.device), 0) if unused.any() else tables
