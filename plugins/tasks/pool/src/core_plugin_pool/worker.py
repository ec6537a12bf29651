"""The task `pool` in the worker: one step from plan to vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from core.api.runners import Enqueued, RunnerSetup, TaskRunner, WorkerTask
from core.api.shapes import PoolingShape
from core.api.wire import restored
from core_plugin_pool.dense import load_dense
from core_plugin_pool.engine import NAME, Pooled, Pooling

if TYPE_CHECKING:
    from core.api.participants import BatchInputs
    from core.api.runners import Timer
    from core.api.steps import NewRow, StepPlan, StepResult

NOT_FINITE = "CORE-E121 The model produced a vector that is not finite numbers for this request."


def _same(pooled: Tensor) -> Tensor:
    return pooled


class PoolingRunner(TaskRunner):
    """Reduces the hidden states of each prompt to what its request asked for.

    Args:
        shape: What requests get that do not say otherwise.
        dense: The layers behind pooling.
    """

    def __init__(self, setup: RunnerSetup, shape: PoolingShape, dense: Callable[[Tensor], Tensor] = _same) -> None:
        self._setup, self._dense = setup, dense
        self._default = Pooling(shape.method)
        self._asked: dict[int, Pooling] = {}
        self._arrays: dict[int, dict[str, Tensor]] = {}
        self._seconds = np.zeros(len(setup.tokens), dtype=np.int64)
        self._head = setup.heads.classify if shape.task == "classify" else None
        self._reduce = self._pool

    def time(self, timer: Timer) -> None:
        """Have the reduction timed, or no longer."""
        self._reduce = timer("pool", self._pool)

    def admit(self, new_rows: Sequence[NewRow]) -> None:
        """Keep what the requests ask for."""
        for new in new_rows:
            # The warm-up's row brings no part.
            part = new.parts.get(NAME, self._default)
            asked: Pooling = restored(part, Pooling, NAME)
            self._asked[new.row] = asked
            self._seconds[new.row] = asked.second
            arrays = {name: self._setup.upload(one.array()) for name, one in asked.arrays.items()}
            if arrays or new.row in self._arrays:
                self._arrays[new.row] = arrays

    def run(self, plan: StepPlan, result: StepResult) -> Enqueued:
        """Enqueue the forward pass and the reduction."""
        inputs = self._setup.build(plan)
        # A prompt runs in one step, and its arrays with it.
        arrays = tuple(self._arrays.pop(row, {}) for row in plan.rows.tolist()) if self._arrays else ()
        inputs = replace(cast("Any", inputs), token_types=self._types(plan, inputs), arrays=arrays)
        # Graphs read token ids and positions, and nothing else of a request.
        forward = self._setup.plain if arrays or inputs.token_types is not None else self._setup.forward
        return self._reduce(plan, inputs, forward(inputs), result)

    def _types(self, plan: StepPlan, inputs: BatchInputs) -> Tensor | None:
        seconds = self._seconds[plan.rows]
        if not seconds.any():
            return None
        seconds[seconds == 0] = self._setup.tokens.shape[1]  # behind every position
        begins = self._to_device(np.repeat(seconds, plan.counts))
        return (inputs.positions >= begins).long()

    def _pool(self, plan: StepPlan, inputs: BatchInputs, hidden: Tensor, result: StepResult) -> Enqueued:
        """Reduce the prompts that end in this step, to be read as vectors by place in the plan."""
        starts = inputs.batch.query_starts
        rows: dict[str, list[int]] = {}
        for i in np.flatnonzero(plan.samples).tolist():
            rows.setdefault(self._asked[int(plan.rows[i])].method, []).append(i)
        tensors: list[Tensor] = []
        groups: list[tuple[list[int], np.ndarray | None]] = []
        for method, places in rows.items():
            begins, ends = starts[places].astype(np.int64), starts[np.array(places) + 1].astype(np.int64)
            pooled = self._reduced(method, hidden, begins, ends)
            if self._head is not None:
                pooled = self._head(pooled)
            elif method == self._default.method:  # tokens of a model that embeds whole texts are as they are
                pooled = self._dense(pooled)
            tensors.append(pooled.float())
            groups.append((places, np.cumsum(ends - begins)[:-1] if method == "all" else None))

        def finish(arrays: list[np.ndarray]) -> None:
            vectors: dict[int, np.ndarray] = {}
            for (places, bounds), numbers in zip(groups, arrays, strict=True):
                parts = list(numbers) if bounds is None else np.split(numbers, bounds)
                vectors.update(zip(places, parts, strict=True))
            broken = {place: NOT_FINITE for place, vector in vectors.items() if not np.isfinite(vector).all()}
            result.errors.update(broken)
            result.parts[NAME] = Pooled({place: one for place, one in vectors.items() if place not in broken})

        return Enqueued(tensors, finish)

    def _reduced(self, method: str, hidden: Tensor, begins: np.ndarray, ends: np.ndarray) -> Tensor:
        """Return one row per prompt, `(prompts, hidden)`; for `all` every token of these prompts, in order."""
        device = self._to_device
        if method == "cls":
            return hidden[device(begins)]
        if method == "last":
            return hidden[device(ends - 1)]
        if method == "max":
            bounds = zip(begins.tolist(), ends.tolist(), strict=True)
            return torch.stack([hidden[begin:end].amax(0) for begin, end in bounds])
        whole = int((ends - begins).sum()) == len(hidden)
        wanted = hidden if whole else hidden[device(_ranges(begins, ends))]
        if method == "all":
            return wanted.clone() if whole else wanted  # the next step may overwrite what a graph returned
        lengths = ends - begins
        owner = device(np.repeat(np.arange(len(lengths)), lengths))
        total = torch.zeros(len(lengths), hidden.shape[1], dtype=torch.float32, device=hidden.device)
        total.index_add_(0, owner, wanted.float())
        return (total / device(lengths)[:, None]).to(hidden.dtype)

    def _to_device(self, array: np.ndarray) -> Tensor:
        """Return index data as an int64 tensor on the device."""
        return self._setup.upload(array.astype(np.int64, copy=False))


class PoolWorker(WorkerTask):
    """Builds the runner that pools, with the layers that the model's makers put behind pooling."""

    def runner(self, setup: RunnerSetup) -> PoolingRunner:
        """Return the runner. Raises `CheckpointError` CORE-M136, the weights of those layers are not there."""
        shape = PoolingShape.model_validate(setup.data)
        return PoolingRunner(setup, shape, load_dense(setup.reader(), setup.checkpoint, shape.dense, setup.device))


def _ranges(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    return np.concatenate([np.arange(begin, end) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)])
