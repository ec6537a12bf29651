"""Structured output in the worker: the masks that the engine half made are what rows may sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api.participants import AllowedTokens, WorkerParticipant
from core_plugin_structured.parts import PARTS

if TYPE_CHECKING:
    from core.api.steps import StepPlan


class StructuredWorker(WorkerParticipant):
    """Hands the engine half's masks to the sampler."""

    parts = PARTS

    def allow(self, plan: StepPlan, late: AllowedTokens) -> AllowedTokens:
        """Return the masks as they came."""
        return late
