"""Attention layers that torch.compile does not look into: a model is compiled in the pieces between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

METHODS = ("write_kv", "write_rotated", "write", "forward", "forward_picked")
"""What steps call of attention layers of all kinds."""


class Opaque:
    """A layer whose `METHODS` run as they are; everything else is the layer's own."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_layer"], name)


def opaque(layer: Any) -> Opaque:
    """Return a layer in front of another."""
    made, disable = Opaque(layer), cast("Callable[..., Any]", torch.compiler.disable)
    for name in METHODS:
        if hasattr(layer, name):
            own = disable(getattr(layer, name), reason="attention reads the step's plan")
            setattr(made, name, own)
    return made
