"""The task `generate` in the worker: hidden states become logits, and logits tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from core.api.descriptors import LogitsSpec
from core.api.errors import PluginError
from core.api.logits import LogitsContext
from core.worker.runner import Runner
from core.worker.sampling.field_rows import FieldRows
from core.worker.sampling.plugin_logits import PluginProcessor
from core.worker.sampling.sampler import Sampler
from core.worker.tasks.base import OwnWorkerTask, RunnerParts
from core.worker.warmup import DECODE_STEPS

if TYPE_CHECKING:
    from core.config.resolved import EngineConfig
    from core.worker.loader import LoadedModel


class GenerateWorker(OwnWorkerTask):
    """Builds the runner that samples."""

    warm_up_decodes = DECODE_STEPS

    def check(self, config: EngineConfig, loaded: LoadedModel) -> None:
        """Refuse a model without logits. Raises `PluginError` CORE-P164."""
        planned = config.plan.one("core.models")
        if planned and not hasattr(loaded.model, "logits"):
            text = f"model implementation {planned.owner} has no logits(hidden): it can pool, but generates no tokens."
            hint = "Its shape says with `pooling` that it only pools; the user may say --runner pooling."
            raise PluginError("CORE-P164", text, hint=hint)

    def runner(self, setup: RunnerParts) -> Runner:
        """Return a runner with the plan's logits processors."""
        config, rows = setup.config, setup.rows
        sampler = Sampler(
            config.options.scheduler.max_num_seqs,
            config.shape.vocab_size,
            rows.transfers,
            config.options.model.seed,
            list(_logits_processors(setup)),
            setup.loaded.kernels.pick,
        )
        return Runner(setup.model, setup.backend, setup.caches, rows, sampler, setup.graphed)


def _logits_processors(setup: RunnerParts) -> Iterator[PluginProcessor]:
    """Yield the plan's logits processors, in its order."""
    rows, max_rows = setup.rows, setup.config.options.scheduler.max_num_seqs
    for planned, spec, _ in setup.active.impls("core.logits"):
        spec = cast(LogitsSpec, spec)
        fields = FieldRows.of(spec, max_rows)
        context = LogitsContext(
            rows.device, setup.config.shape.vocab_size, max_rows, rows.tokens, planned.options, fields.numbers
        )
        made = setup.active.make(planned, context)
        yield PluginProcessor(planned.owner, made, np.zeros(max_rows, dtype=bool), spec.drafts, fields)
