"""Step inputs: what one forward pass reads, written anew for every step into memory that stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from core.api.attention import AttentionPlan, BatchView
from core.api.states import StateRows
from core.api.steps import StepPlan
from core.worker.late import verified
from core.worker.rows import RowTable
from core.worker.stage import Stage, int32_section
from core.worker.tables import BatchTables


@dataclass(slots=True)
class StepInputs:
    """`core.api.layers.StepInputs`, and what the runner needs around the forward pass.

    Nobody changes it; its tensors are good until the next step.

    Attributes:
        token_ids, positions: `(tokens,)` int64 on the device.
        plans: The attention backend's plans, one per cache group.
        batch: The batch as attention sees it in the first group.
        logit_indices: `(positions,)` int64 on the device, the tokens that are sampled from: the last one of each row
            that samples, and with drafts all that it runs.
        targets: `(positions,)` int64 on the device, numbers in the pool of tokens: where each sampled one goes. Empty
            where the device shares the host's memory.
        token_types, arrays, states: As in `core.api.layers.StepInputs`.
    """

    token_ids: Tensor
    positions: Tensor
    plans: Sequence[AttentionPlan]
    batch: BatchView
    logit_indices: Tensor
    targets: Tensor
    token_types: Tensor | None = None
    arrays: tuple[Mapping[str, Tensor], ...] = ()
    states: StateRows | None = None

    @property
    def plan(self) -> AttentionPlan:
        """The plan of the first group, which is the only one of most models."""
        return self.plans[0]


class Planner(Protocol):
    """Plans attention: a backend, or what decides for it."""

    def plan(self, batch: BatchView) -> AttentionPlan:
        """Prepare a step."""
        ...


class InputBuilder:
    """Makes step inputs on the host, with a handful of array operations and at most one copy whatever the batch."""

    def __init__(self, rows: RowTable, backend: Planner) -> None:
        self._rows, self._backend = rows, backend
        self._stage = Stage(rows.transfers)
        self._tables = BatchTables(rows)
        self._ramp = np.arange(rows.block_tables.shape[1] + 1, dtype=np.int32)
        self._twins: tuple[tuple[Tensor, ...], list[tuple[int, ...]], list[Tensor]] = ((), [], [])

    def build(self, step: StepPlan) -> StepInputs:
        """Return the inputs of a step with at least one row."""
        longest = int(step.counts.max())
        token_rows, query_starts, begins = self._spread(step, longest)
        sampled = query_starts[1:][step.samples] - 1
        if step.drafts is not None and step.drafts.max() > 0:
            sampled = _with_drafts(sampled, verified(step))
        seq_lens = step.starts + step.counts
        context = int(seq_lens.max())
        tables = self._tables.follow(step, seq_lens, context)
        arrays = [table.numpy() for table in tables] if self._rows.transfers.apart else []
        further = (query_starts, seq_lens, *arrays) if arrays else ()
        of_rows = [step.rows, step.starts == 0] if self._rows.states else []
        self._write(token_rows, begins, sampled, further, of_rows)
        token_ids, positions, places, last, targets, *rest = self._stage.tensors
        held, rest = rest[: len(of_rows)], rest[len(of_rows) :]
        slots, twins = rest[: len(tables)], rest[len(tables) :]
        self._rows.read_tokens(self._stage.host[2], places, self._stage.host[0], token_ids)
        views = [
            BatchView(query_starts, seq_lens, table, of_group, longest, context, layers)
            for table, of_group, layers in zip(tables, slots, self._rows.layers, strict=True)
        ]
        if further:
            views = _on_device(views, self._shaped(twins, further))
        return StepInputs(
            token_ids=token_ids,
            positions=positions,
            plans=[self._backend.plan(view) for view in views],
            batch=views[0],
            logit_indices=last,
            targets=targets,
            states=self._states(held, query_starts, twins),
        )

    def _shaped(self, twins: Sequence[Tensor], arrays: Sequence[np.ndarray]) -> list[Tensor]:
        """Return the numbers of sections in the shapes of the arrays; while nothing changes these, as they were."""
        tensors, shapes = self._stage.tensors, [array.shape for array in arrays]
        if self._twins[0] is not tensors or self._twins[1] != shapes:
            self._twins = tensors, shapes, [_int32(twin, array) for twin, array in zip(twins, arrays, strict=True)]
        return self._twins[2]

    def _states(self, held: Sequence[Tensor], starts: np.ndarray, twins: Sequence[Tensor]) -> StateRows | None:
        """Return the rows for states; `twins` are query starts and more on a device with memory of its own."""
        if not held:
            return None
        slots, fresh = held
        return StateRows(slots, fresh, starts, _int32(twins[0], starts) if twins else None)

    def _write(
        self,
        token_rows: np.ndarray,
        begins: np.ndarray,
        sampled: np.ndarray,
        further: Sequence[np.ndarray],
        of_rows: Sequence[np.ndarray],
    ) -> None:
        """Write a step's index data, and bring it to the device.

        Args:
            further: int32 arrays that the device needs as well, where it does not share the host's memory.
            of_rows: Numbers of the rows.
        """
        tokens, table = len(token_rows), self._rows
        groups, apart = len(table.layers), table.transfers.apart
        numbers = (int32_section(array.size) for array in further)
        rows = (len(one) for one in of_rows)
        chosen = (len(sampled), len(sampled) if apart else 0)
        self._stage.lay_out(tokens, tokens, tokens, *chosen, *rows, *(tokens for _ in range(groups)), *numbers)
        _, positions, places, last, targets, *rest = self._stage.host
        for section, array in zip(rest, of_rows):
            section[:] = array
        rest = rest[len(of_rows) :]
        slots, twins = rest[:groups], rest[groups:]
        positions[:] = begins
        blocks, offsets = np.divmod(positions, table.block_size)
        for of_group, block_table in zip(slots, table.block_tables, strict=True):
            of_group[:] = block_table[token_rows, blocks]
            of_group *= table.block_size
            of_group += offsets
        np.multiply(token_rows, table.width, out=places)
        places += positions
        last[:] = sampled
        if apart:
            np.add(places[sampled], 1, out=targets)
        for section, array in zip(twins, further, strict=True):
            section.view(np.int32)[: array.size] = array.reshape(-1)
        self._stage.flush()

    def _spread(self, step: StepPlan, longest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the row of each token, where each row's tokens start in the step, and each token's position."""
        rows = step.rows.astype(np.int64)
        if longest == 1:
            return rows, self._ramp[: len(rows) + 1], step.starts
        query_starts = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(step.counts, out=query_starts[1:])
        offsets = np.repeat(step.starts - query_starts[:-1], step.counts)
        return np.repeat(rows, step.counts), query_starts, offsets + np.arange(len(offsets))


def _on_device(views: Sequence[BatchView], twins: Sequence[Tensor]) -> list[BatchView]:
    """Return the views of a device with memory of its own: query starts, lengths and tables are there as well."""
    starts, lengths, *tables = twins
    pairs = zip(views, tables, strict=True)
    return [replace(view, block_tables=table, twins=(starts, lengths)) for view, table in pairs]


def _int32(section: Tensor, array: np.ndarray) -> Tensor:
    """Return the numbers of a section, in the array's shape."""
    return section.view(torch.int32)[: array.size].view(array.shape)


def _with_drafts(last: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the last `counts[i]` tokens up to each `last[i]`, in order."""
    ends = np.cumsum(counts)
    within = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
    places: np.ndarray = np.repeat(last - counts + 1, counts) + within
    return places
