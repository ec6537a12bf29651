"""Step inputs: what one forward pass reads, written anew for every step into memory that stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from core.api.attention import AttentionBackend, AttentionPlan, BatchView
from core.engine.step import StepPlan
from core.worker.guarded import GuardedBackend
from core.worker.late import verified
from core.worker.rows import RowTable
from core.worker.stage import Stage
from core.worker.tables import BatchTables


@dataclass(slots=True)
class StepInputs:
    """`core.api.models.StepInputs`, and what the runner needs around the forward pass.

    Nobody changes it; its tensors are good until the next step.

    Attributes:
        token_ids, positions: `(tokens,)` int64 on the device.
        plans: The attention backend's plans, one per cache group.
        batch: The batch as attention sees it in the first group.
        logit_indices: `(positions,)` int64 on the device, the tokens that are sampled from: the last one of each row
            that samples, and with drafts all that it runs.
        token_types, arrays: As in `core.api.models.StepInputs`.
    """

    token_ids: Tensor
    positions: Tensor
    plans: Sequence[AttentionPlan]
    batch: BatchView
    logit_indices: Tensor
    token_types: Tensor | None = None
    arrays: tuple[Mapping[str, Tensor], ...] = ()

    @property
    def plan(self) -> AttentionPlan:
        """The plan of the first group, which is the only one of most models."""
        return self.plans[0]


class InputBuilder:
    """Makes step inputs on the host, with a handful of array operations and at most one copy whatever the batch."""

    def __init__(self, rows: RowTable, backend: AttentionBackend | GuardedBackend) -> None:
        self._rows, self._backend = rows, backend
        self._stage = Stage(rows.device)
        self._tables = BatchTables(rows)
        self._ramp = np.arange(rows.block_tables.shape[1] + 1, dtype=np.int32)

    def build(self, step: StepPlan) -> StepInputs:
        """Return the inputs of a step with at least one row."""
        longest = int(step.counts.max())
        token_rows, query_starts, begins = self._spread(step, longest)
        tokens, table = len(token_rows), self._rows
        sampled = query_starts[1:][step.samples] - 1
        if step.drafts is not None and step.drafts.max() > 0:
            sampled = _with_drafts(sampled, verified(step))
        self._stage.lay_out(tokens, tokens, tokens, len(sampled), *(tokens for _ in table.layers))
        token_ids, positions, places, last, *slots = self._stage.host
        positions[:] = begins
        blocks, offsets = np.divmod(positions, table.block_size)
        for of_group, block_table in zip(slots, table.block_tables, strict=True):
            of_group[:] = block_table[token_rows, blocks]
            of_group *= table.block_size
            of_group += offsets
        np.multiply(token_rows, table.width, out=places)
        places += positions
        last[:] = sampled
        self._stage.flush()
        staged = self._stage.tensors
        table.read_tokens(places, staged[2], token_ids, staged[0])
        views = self._views(step, query_starts, staged[4:], longest)
        return StepInputs(
            token_ids=staged[0],
            positions=staged[1],
            plans=[self._backend.plan(view) for view in views],
            batch=views[0],
            logit_indices=staged[3],
        )

    def _spread(self, step: StepPlan, longest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the row of each token, where each row's tokens start in the step, and each token's position."""
        rows = step.rows.astype(np.int64)
        if longest == 1:
            return rows, self._ramp[: len(rows) + 1], step.starts
        query_starts = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(step.counts, out=query_starts[1:])
        offsets = np.repeat(step.starts - query_starts[:-1], step.counts)
        return np.repeat(rows, step.counts), query_starts, offsets + np.arange(len(offsets))

    def _views(
        self, step: StepPlan, query_starts: np.ndarray, slots: Sequence[Tensor], longest: int
    ) -> Sequence[BatchView]:
        """Return the batch as the layers of each group see it."""
        seq_lens = step.starts + step.counts
        longest_context = int(seq_lens.max())
        tables = self._tables.follow(step, seq_lens, longest_context)
        return [
            BatchView(
                query_starts=query_starts,
                seq_lens=seq_lens,
                block_tables=table,
                slots=of_group,
                max_query_len=longest,
                max_seq_len=longest_context,
                layers=layers,
            )
            for table, of_group, layers in zip(tables, slots, self._rows.layers, strict=True)
        ]


def _with_drafts(last: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the last `counts[i]` tokens up to each `last[i]`, in order."""
    ends = np.cumsum(counts)
    within = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
    places: np.ndarray = np.repeat(last - counts + 1, counts) + within
    return places
