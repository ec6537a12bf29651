"""A step for which the device's memory did not suffice: it ends its own requests, and leaves memory for the next."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import torch

from core.api.errors import OUT_OF_MEMORY, EngineError
from core.worker.memory import gib

if TYPE_CHECKING:
    from core.api.platform import Platform
    from core.api.steps import StepPlan

EXHAUSTED = (MemoryError, torch.OutOfMemoryError)
"""Exceptions that mean that memory does not suffice."""


def exhausted(platform: Platform, plan: StepPlan, error: BaseException) -> EngineError:
    """Have the platform give memory back, and return the error of the step: CORE-E128, with the sizes.

    Args:
        error: One of `EXHAUSTED`.
    """
    traceback.clear_frames(error.__traceback__)  # they hold what the step had computed so far
    platform.release_memory()
    memory, told = platform.memory(), str(error).partition("\n")[0].rstrip(". ")
    return EngineError(
        OUT_OF_MEMORY,
        f"memory ran out in a step of {plan.num_tokens} tokens for {len(plan.rows)} requests"
        f"{f' ({told})' if told else ''}; {gib(memory.free)} of {gib(memory.total)} is free now.",
        hint="Lower --memory-fraction, --max-num-batched-tokens or --max-num-seqs.",
    )
