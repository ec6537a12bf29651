"""Attention as operations of torch, so that a model is traced as a whole; a step's plans reach them beside it.

What is traced has names in place of layers and plans: a layer's is its own, a plan's is its place in the step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch

from core.api.attention import Rotation

if TYPE_CHECKING:
    from torch import Tensor

    from core_plugin_torch_compile.opaque import Spanned


class PlanName:
    """Stands for a plan while a step is traced.

    Attributes:
        name: Its place among the step's plans.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class _Current(threading.local):
    plans: Sequence[Any] = ()


_current = _Current()
_layers: WeakValueDictionary[str, Spanned] = WeakValueDictionary()
_numbers = count()


def use(plans: Sequence[Any]) -> None:
    """Let names stand for these plans from now on, in this thread."""
    _current.plans = plans


def plan_of(plan: Any) -> Any:
    """Return the plan that a name stands for, or what is no name as it is."""
    return _current.plans[int(plan.name)] if isinstance(plan, PlanName) else plan


def named(layer: Spanned) -> str:
    """Return a name for a layer, which it has as long as it lives."""
    name = str(next(_numbers))
    _layers[name] = layer
    return name


def write(k: Tensor, v: Tensor, kv: Tensor, layer: str, plan: str) -> None:
    """Have a layer write keys and values by the current step's plan."""
    _layers[layer].layer.write_kv(k, v, kv, _current.plans[int(plan)])


def rotate(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    table: Tensor,
    interleaved: bool,
    kv: Tensor,
    layer: str,
    plan: str,
) -> Tensor:
    """Have a layer rotate queries and keys and write by the current step's plan; return the queries."""
    rotation = Rotation(positions, table, interleaved)
    turned: Tensor = _layers[layer].layer.write_rotated(q, k, v, rotation, kv, _current.plans[int(plan)])
    return turned.contiguous()


def attend(q: Tensor, kv: Tensor, layer: str, plan: str) -> Tensor:
    """Have a layer attend by the current step's plan; dense, as `_attended` says to what is compiled behind it."""
    out: Tensor = _layers[layer].layer.forward(q, kv, _current.plans[int(plan)])
    return out.contiguous()


def _attended(q: Tensor, kv: Tensor, layer: str, plan: str) -> Tensor:
    """Return what `attend` would, without its numbers."""
    return q.new_empty(q.shape[0], _layers[layer].width)


_LIBRARY = torch.library.Library("core_torch_compile", "DEF")
_LIBRARY.define("write(Tensor k, Tensor v, Tensor(a!) kv, str layer, str plan) -> ()")
_LIBRARY.define(
    "rotate(Tensor q, Tensor k, Tensor v, Tensor positions, Tensor table, bool interleaved, Tensor(a!) kv, str layer, "
    "str plan) -> Tensor"
)
_LIBRARY.define("attend(Tensor q, Tensor kv, str layer, str plan) -> Tensor")
_LIBRARY.impl("write", write, "CompositeExplicitAutograd")
_LIBRARY.impl("rotate", rotate, "CompositeExplicitAutograd")
_LIBRARY.impl("attend", attend, "CompositeExplicitAutograd")
torch.library.register_fake("core_torch_compile::write", lambda *_: None, lib=_LIBRARY)
torch.library.register_fake("core_torch_compile::rotate", lambda q, *_: q.new_empty(q.shape), lib=_LIBRARY)
torch.library.register_fake("core_torch_compile::attend", _attended, lib=_LIBRARY)

WRITE, ATTEND = torch.ops.core_torch_compile.write.default, torch.ops.core_torch_compile.attend.default
ROTATE = torch.ops.core_torch_compile.rotate.default
DIRECT: dict[Any, Callable[..., Any]] = {WRITE: write, ROTATE: rotate, ATTEND: attend}
"""Operation -> what it does: compiled steps call it without torch's dispatcher."""
