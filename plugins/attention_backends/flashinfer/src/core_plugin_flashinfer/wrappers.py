"""FlashInfer's wrappers, taken in turns: each uploads its plan from memory that its next plan overwrites."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

TURNS = 2
"""Wrappers of a kind. The host is rarely two plans ahead of the device; where it is, it waits for an upload."""


class Fenced:
    """A wrapper, and the end of its last upload."""

    def __init__(self, wrapper: Any, device: torch.device) -> None:
        self.wrapper = wrapper
        self._module = torch.get_device_module(device) if device.type != "cpu" else None
        self._uploaded: Any = None

    def plan(self, *arguments: Any, **named: Any) -> Any:
        """Plan a step, as soon as the last plan has been uploaded; return the wrapper."""
        if self._uploaded is not None:
            self._uploaded.synchronize()
        self.wrapper.plan(*arguments, **named)
        if self._module is not None:
            self._uploaded = self._module.Event()
            self._uploaded.record()
        return self.wrapper


class Turns:
    """Wrappers of one kind, made when they are first needed.

    Args:
        make: Returns a new one.
    """

    def __init__(self, make: Callable[[], Any], device: torch.device) -> None:
        self._make, self._device = make, device
        self._all: list[Fenced] = []
        self._next = 0

    def plan(self, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        """Plan a step with the one whose turn it is; return it."""
        if self._next == len(self._all):
            self._all.append(Fenced(self._make(), self._device))
        mine = self._all[self._next]
        self._next = (self._next + 1) % TURNS
        return mine.plan(*arguments, **named)


def wrapper_of(plan: Any, kind: Hashable) -> Any:
    """Return the planned wrapper of layers of a kind."""
    found = plan.wrappers[kind]
    return found.wrapper if isinstance(found, Fenced) else found
