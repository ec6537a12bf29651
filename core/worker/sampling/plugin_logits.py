"""Logits processors of plugins, behind the interface of core's own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from core.worker.sampling.batch import SampleBatch

if TYPE_CHECKING:
    from core.api.logits import LogitsProcessor
    from core.api.steps import NewRow
    from core.worker.sampling.field_rows import FieldRows

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class PluginProcessor:
    """A plugin's processor.

    Attributes:
        rows: Those it accepted, `(max_rows,)` bool.
        fields: What their requests say of its sampling parameters; None: it has none.
        drafts: As in `LogitsSpec`.
    """

    owner: str
    processor: LogitsProcessor
    rows: np.ndarray
    drafts: bool = False
    fields: FieldRows | None = None

    def admit(self, new: NewRow) -> bool:
        """Give a row to its new owner; say whether the processor concerns it."""
        if self.fields is not None and not self.fields.admit(new.row, new.params):
            return False
        return self.processor.admit(new.row, new.params, new.prompt)


@dataclass(slots=True)
class PluginLogits:
    """Applies processors in order, each to its own rows. One that raises fails its rows, not the step.

    Attributes:
        feature: The `Feature` bit of rows that any of them accepted.
        failed: Row -> why it cannot be served.
    """

    feature: int
    processors: Sequence[PluginProcessor]
    failed: dict[int, str] = field(default_factory=dict)

    def admit(self, new: NewRow) -> bool:
        """Give a row to its new owner; say whether any processor (or its failure) concerns it."""
        self.failed.pop(new.row, None)
        for one in self.processors:
            try:
                if one.rows[new.row]:
                    one.rows[new.row] = False
                    one.processor.release(new.row)
                one.rows[new.row] = one.admit(new)
            except Exception as error:
                self._fail(one, [new.row], error)
        return new.row in self.failed or any(bool(one.rows[new.row]) for one in self.processors)

    def apply(self, logits: Tensor, batch: SampleBatch) -> None:
        """Change `logits (n, vocab)` float32 in place."""
        for one in self.processors:
            index = np.flatnonzero(one.rows[batch.rows])
            if not len(index):
                continue
            rows, counts = batch.rows[index], batch.output_counts[index]
            try:
                if len(index) == len(logits):
                    one.processor.apply(logits, rows, counts)
                    continue
                places = torch.from_numpy(index).to(logits.device, non_blocking=True)
                part = logits[places]
                one.processor.apply(part, rows, counts)
                logits[places] = part
            except Exception as error:
                self._fail(one, rows.tolist(), error)

    def errors(self, batch: SampleBatch) -> dict[int, str]:
        """Return index -> error of the batch's rows that failed."""
        if not self.failed:
            return {}
        return {i: self.failed[row] for i, row in enumerate(batch.rows.tolist()) if row in self.failed}

    def _fail(self, one: PluginProcessor, rows: Sequence[int], error: Exception) -> None:
        logger.error("logits processor %s failed", one.owner, exc_info=error)
        text = f"CORE-E126 Logits processor {one.owner} failed for this request: {type(error).__name__}: {error}"
        self.failed.update(dict.fromkeys(rows, text))
