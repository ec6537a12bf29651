"""Attention layers that torch.compile does not look into: a model is compiled in the pieces between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch

from core.api.attention import AttentionSite, Rotation
from core_plugin_torch_compile.operations import ATTEND, ROTATE, WRITE, PlanName, named, plan_of

if TYPE_CHECKING:
    from torch import Tensor

METHODS = ("write_kv", "write_rotated", "write", "forward", "forward_picked")
"""Methods of attention layers of all kinds that steps call. The step's plan is an argument of each."""


class Opaque:
    """A layer whose `METHODS` run as they are, and end what is compiled; everything else is the layer's own."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["layer"], name)


class Spanned(Opaque):
    """A layer whose `write_kv` and `forward` are operations in what is traced: pieces reach from one to the next."""

    def __init__(self, layer: Any, site: AttentionSite) -> None:
        super().__init__(layer)
        self.width = site.num_heads * (site.value_dim or site.head_dim)
        self.name = named(self)

    def write_kv(self, k: Tensor, v: Tensor, kv: Tensor, plan: Any) -> None:
        """Store `k, v` at the plan's slots."""
        if isinstance(plan, PlanName) and torch.compiler.is_compiling():
            WRITE(k, v, kv, self.name, plan.name)
        else:
            self.layer.write_kv(k, v, kv, plan_of(plan))

    def forward(self, q: Tensor, kv: Tensor, plan: Any) -> Tensor:
        """Attend causally."""
        if isinstance(plan, PlanName) and torch.compiler.is_compiling():
            return cast("Tensor", ATTEND(q, kv, self.name, plan.name))
        return cast("Tensor", self.layer.forward(q, kv, plan_of(plan)))


class Rotating(Spanned):
    """A layer whose `write_rotated` is an operation, too."""

    def write_rotated(self, q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, kv: Tensor, plan: Any) -> Tensor:
        """Rotate queries and keys, and store `k, v` at the plan's slots."""
        if isinstance(plan, PlanName) and torch.compiler.is_compiling():
            turn = (rotation.positions, rotation.table, rotation.interleaved)
            return cast("Tensor", ROTATE(q, k, v, *turn, kv, self.name, plan.name))
        return cast("Tensor", self.layer.write_rotated(q, k, v, rotation, kv, plan_of(plan)))


def opaque(layer: Any, site: Any) -> Opaque:
    """Return a layer in front of another."""
    if isinstance(site, AttentionSite) and hasattr(layer, "write_kv"):
        return Rotating(layer, site) if hasattr(layer, "write_rotated") else Spanned(layer, site)
    made, disable = Opaque(layer), cast("Callable[..., Any]", torch.compiler.disable)
    for name in METHODS:
        if hasattr(layer, name):
            setattr(made, name, disable(_planned(getattr(layer, name)), reason="attention reads the step's plan"))
    return made


def _planned(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a layer that takes names for plans as well."""

    def run(*arguments: Any) -> Any:
        return method(*map(plan_of, arguments))

    return run
