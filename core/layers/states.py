"""Memory for recurrent states: a slot for each row, which the worker allocates."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from core.api.errors import PluginError
from core.api.states import State

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from core.api.layers import StepInputs


class StateMemory:
    """Memory for one state of every request.

    Attributes:
        name: What it is, unique in the model.
        shape: Of one request's state.
        memory: `(slots, *shape)`; bound once by the worker, before the first call.
    """

    memory: Tensor

    def __init__(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> None:
        self.name, self.shape, self.dtype = name, tuple(shape), dtype

    @property
    def num_bytes(self) -> int:
        """Bytes of one request's state."""
        return prod(self.shape) * self.dtype.itemsize

    def __call__(self, step: StepInputs) -> State:
        """Return the state as operations take it.

        Raises:
            PluginError: CORE-P251, the model's shape does not say that it is recurrent.
        """
        if step.states is None:
            text = f"the model keeps a state, {self.name}, and its shape does not say that it is recurrent."
            raise PluginError("CORE-P251", text, hint="Report it to the model plugin's author.")
        return State(self.memory, step.states)
