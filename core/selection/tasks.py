"""Choosing the engine's task, from the model and what the user wants of it. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from core.api.shapes import ModelShape, PoolingShape
from core.api.weights import CheckpointInfo
from core.config.resolved import ModelOptions
from core.selection.pooling import longest_prompt, pooling_of
from core.tasks import engine_half


@dataclass(frozen=True, slots=True)
class ChosenTask:
    """A task and what follows from it before anything is loaded.

    Attributes:
        name: As in `core.tasks.TASKS`.
        context: Tokens of the longest request by default.
        decodes, step_tokens: As those of its engine half.
        pooling: Data of the task `pool`; None for any other.
    """

    name: str
    context: int
    decodes: bool
    step_tokens: int | None
    pooling: PoolingShape | None = None


def choose_task(options: ModelOptions, checkpoint: CheckpointInfo, shape: ModelShape) -> ChosenTask:
    """Return the task.

    Raises:
        ConfigError: CORE-C190, CORE-C191, as `pooling_of`.
    """
    pooling = pooling_of(options, checkpoint, shape)
    if pooling is None:
        return _chosen("generate", shape.default_positions)
    return _chosen("pool", longest_prompt(checkpoint, shape), pooling)


def _chosen(name: str, context: int, pooling: PoolingShape | None = None) -> ChosenTask:
    half = engine_half(name)
    return ChosenTask(name, context, half.decodes, half.step_tokens, pooling)
