"""The worker half of a task: which runner executes steps, and what the model must be able to do for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import Tensor

    from core.config.resolved import EngineConfig
    from core.plugins.active import ActivePlugins
    from core.worker.graphs import GraphedForward
    from core.worker.guarded import GuardedModel
    from core.worker.inputs import Planner
    from core.worker.loader import LoadedModel
    from core.worker.rows import RowTable
    from core.worker.runner import StepRunner


@dataclass(frozen=True)
class RunnerParts:
    """Context that a runner of core's is constructed with.

    Attributes:
        loaded: The model with its layers, kernels and owners.
        model, backend: The loaded ones, whose answers are checked.
        caches: KV cache of each layer, `(blocks, ...)`.
        graphed: The forward pass by the platform's graphs, if it has some.
    """

    config: EngineConfig
    active: ActivePlugins
    loaded: LoadedModel
    model: GuardedModel
    backend: Planner
    caches: Sequence[Tensor] = field(repr=False)
    rows: RowTable
    graphed: GraphedForward | None


class OwnWorkerTask(ABC):
    """Base of worker halves of core's, without state: `core.api.tasks` says what the halves send each other.

    Attributes:
        warm_up_decodes: Steps of one token behind a prompt that a warm-up runs.
    """

    warm_up_decodes: ClassVar[int] = 0

    def check(self, config: EngineConfig, loaded: LoadedModel) -> None:
        """Refuse a model that cannot do it, before any weight is read. Raises `PluginError`."""
        return

    @abstractmethod
    def runner(self, setup: RunnerParts) -> StepRunner:
        """Return what executes steps."""
