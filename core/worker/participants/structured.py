"""Structured output in the worker: the masks that the engine half made are what rows may sample."""

from __future__ import annotations

from core.api.participants import AllowedTokens, Parts, WorkerParticipant
from core.api.steps import StepPlan
from core.engine.participants import STRUCTURED


class StructuredParticipant(WorkerParticipant):
    """Hands the engine half's masks to the sampler."""

    name = STRUCTURED
    parts = Parts(late=AllowedTokens)

    def __init__(self) -> None: ...

    def allow(self, plan: StepPlan, late: AllowedTokens) -> AllowedTokens:
        """Return the masks as they came."""
        return late
