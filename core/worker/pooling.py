"""The runner of an engine that pools: one step from plan to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from core.engine.pooling import Pooling
from core.engine.profile import Timer
from core.engine.step import NewRow, StepPlan, StepResult
from core.worker.inputs import StepInputs
from core.worker.rows import RowTable
from core.worker.runner import StepRunner

if TYPE_CHECKING:
    from core.api.attention import AttentionBackend
    from core.api.models import Model, PoolingShape

NOT_FINITE = "CORE-E121 The model produced a vector that is not finite numbers for this request."


class PoolingRunner(StepRunner):
    """Reduces the hidden states of each prompt to what its request asked for.

    Args:
        shape: What requests get that do not say otherwise.
    """

    def __init__(
        self, model: Model, backend: AttentionBackend, caches: Sequence[Tensor], rows: RowTable, shape: PoolingShape
    ) -> None:
        self._default = Pooling(shape.method)
        self._asked: dict[int, Pooling] = {}
        self._seconds = np.zeros(len(rows.block_tables), dtype=np.int64)
        self._head = model.classify if shape.task == "classify" else None  # type: ignore[attr-defined]
        # No graphs: they are made of decode steps, and there are none.
        super().__init__(model, backend, caches, rows)

    def time(self, timer: Timer) -> None:
        """Have the phases of every step timed, or no longer (`untimed`)."""
        super().time(timer)
        self._reduce = timer("pool", self._pool)

    def _admit(self, new_rows: Sequence[NewRow]) -> None:
        for new in new_rows:
            asked = self._asked[new.row] = new.pooling or self._default
            self._seconds[new.row] = asked.second

    def _run(self, plan: StepPlan, result: StepResult) -> None:
        inputs = self._build(plan)
        inputs = replace(inputs, token_types=self._types(plan, inputs))
        result.vectors = {}
        self._reduce(plan, inputs, self._forward(inputs), result)
        self._taint(plan, result)

    def _types(self, plan: StepPlan, inputs: StepInputs) -> Tensor | None:
        seconds = self._seconds[plan.rows]
        if not seconds.any():
            return None
        seconds[seconds == 0] = self._rows.width  # behind every position
        begins = self._rows.to_device(np.repeat(seconds, plan.counts))
        return (inputs.positions >= begins).long()

    def _pool(self, plan: StepPlan, inputs: StepInputs, hidden: Tensor, result: StepResult) -> None:
        starts = inputs.batch.query_starts
        rows: dict[str, list[int]] = {}
        for i in np.flatnonzero(plan.samples).tolist():
            rows.setdefault(self._asked[int(plan.rows[i])].method, []).append(i)
        for method, places in rows.items():
            begins, ends = starts[places].astype(np.int64), starts[np.array(places) + 1].astype(np.int64)
            pooled = self._reduced(method, hidden, begins, ends)
            if self._head is not None:
                pooled = self._head(pooled)
            _spread(pooled.float().cpu().numpy(), places, ends - begins if method == "all" else None, result)

    def _reduced(self, method: str, hidden: Tensor, begins: np.ndarray, ends: np.ndarray) -> Tensor:
        """Return one row per prompt, `(prompts, hidden)`; for `all` every token of these prompts, in order."""
        device = self._rows.to_device
        if method == "cls":
            return hidden[device(begins)]
        if method == "last":
            return hidden[device(ends - 1)]
        whole = int((ends - begins).sum()) == len(hidden)
        wanted = hidden if whole else hidden[device(_ranges(begins, ends))]
        if method == "all":
            return wanted
        lengths = ends - begins
        owner = device(np.repeat(np.arange(len(lengths)), lengths))
        total = torch.zeros(len(lengths), hidden.shape[1], dtype=torch.float32, device=hidden.device)
        total.index_add_(0, owner, wanted.float())
        return (total / device(lengths)[:, None]).to(hidden.dtype)


def _ranges(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    return np.concatenate([np.arange(begin, end) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)])


def _spread(pooled: np.ndarray, places: list[int], lengths: np.ndarray | None, result: StepResult) -> None:
    """Give each request its rows of `pooled`; one with numbers that are not finite gets an error."""
    vectors = result.vectors if result.vectors is not None else {}
    parts = pooled if lengths is None else np.split(pooled, np.cumsum(lengths)[:-1])
    for place, part in zip(places, parts, strict=True):
        if np.isfinite(part).all():
            vectors[place] = np.ascontiguousarray(part)
        else:
            result.errors[place] = NOT_FINITE
