"""A step as it is traced: with names for the plans of attention, which nothing that is compiled looks into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from core_plugin_torch_compile.operations import PlanName

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.layers import StepInputs
    from core.api.states import StateRows

_NAMES = [PlanName(str(number)) for number in range(64)]


@dataclass(slots=True)
class TracedStep:
    """The inputs of a step; as `core.api.layers.StepInputs`."""

    token_ids: Tensor
    positions: Tensor
    plans: list[PlanName]
    states: StateRows | None
    token_types: Tensor | None
    arrays: tuple[Mapping[str, Tensor], ...]

    @property
    def plan(self) -> PlanName:
        """The first of the plans."""
        return self.plans[0]


def traced(step: StepInputs) -> TracedStep:
    """Return a step for what is compiled, for any number of tokens."""
    for one in (step.token_ids, step.positions):
        torch._dynamo.maybe_mark_dynamic(one, 0)
    more = len(step.plans) - len(_NAMES)
    _NAMES.extend(PlanName(str(len(_NAMES))) for _ in range(more))
    types, arrays = getattr(step, "token_types", None), getattr(step, "arrays", ())
    return TracedStep(step.token_ids, step.positions, _NAMES[: len(step.plans)], step.states, types, arrays)
