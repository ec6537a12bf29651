"""Torch operations that are handed on instead of being carried out: to a queue, or to a graph that records them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

Work = Callable[[], object]

_POISON = 1 << 30
"""Value of integers that were not computed yet; of floats it is NaN."""

_FRESH = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
"""Operations that make memory and write nothing."""

_WAIT = frozenset({"_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "bincount"})
"""Operations whose result the host needs, or whose size is known only when they are done."""

_READ = frozenset({"cpu", "tolist"})
"""Methods of tensors that read them on the host."""


class Deferred(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands on the operations of its thread. Memory of results is made at once, and holds poison until it is written.

    Args:
        enqueue: Takes an operation, to be called once or, by a graph, many times.
        wait: Called where the host cannot go on before everything handed on so far is done.
    """

    def __init__(self, enqueue: Callable[[Work], object], wait: Callable[[], None], shapes: Shapes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._enqueue, self._wait, self._shapes = enqueue, wait, shapes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Hand on one operation, and return tensors that will hold its results."""
        named = dict(kwargs or {})
        op = _operation(func)
        if op.composite:
            with self:
                return func.decompose(*args, **named)
        leaves = tree_leaves((args, named))
        tensors = [one for one in leaves if isinstance(one, Tensor)]
        if op.waits or (op.picks and any(_is_mask(one) for one in tensors[1:])):
            self._wait()
            return func(*args, **named)
        if op.at_once or not tensors or any(one.is_meta for one in tensors):
            return func(*args, **named)
        if op.written:
            self._enqueue(lambda: func(*args, **named))
            place, name = op.written[0]
            return (args[place] if place < len(args) else named[name]) if op.returns else None
        return self._results(func, args, named, leaves)

    def _results(self, func: Any, args: tuple[Any, ...], named: dict[str, Any], leaves: list[Any]) -> Any:
        shapes = self._shapes.of(func, args, named, leaves)
        single = isinstance(shapes, Tensor)
        into = [_made(one) for one in ((shapes,) if single else shapes)]

        def work() -> None:
            found = func(*args, **named)
            for one, value in zip(into, (found,) if single else found, strict=True):
                one.copy_(value)

        self._enqueue(work)
        return into[0] if single else tuple(into)


class _Operation(NamedTuple):
    """How an operation is handed on.

    Attributes:
        composite: It is several others.
        waits: The host waits for its result.
        picks: It waits if it is given a mask.
        at_once: It moves no numbers: it makes memory, or shares that of its arguments.
        written: Places and names of the arguments that it writes to.
        returns: Whether it returns the first of them.
    """

    composite: bool
    waits: bool
    picks: bool
    at_once: bool
    written: tuple[tuple[int, str], ...]
    returns: bool


@cache
def _operation(func: Any) -> _Operation:
    name, schema = func.overloadpacket.__name__, func._schema
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    aliases = [(place, one) for place, one in enumerate(schema.arguments) if one.alias_info is not None]
    written = tuple((place, one.name) for place, one in aliases if one.alias_info.is_write)
    view = not written and any(one.alias_info is not None for one in schema.returns)
    return _Operation(
        composite, name in _WAIT, name == "index", name in _FRESH or view, written, len(schema.returns) == 1
    )


class Shapes:
    """Results of operations without their values, by what they were called with."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def of(self, func: Any, args: tuple[Any, ...], named: dict[str, Any], leaves: list[Any]) -> Any:
        """Return the results of a call, a tensor or several, on torch's device `meta`."""
        key = (func, len(args), tuple(named), *map(_outline, leaves))
        if key not in self._known:
            self._known[key] = _shapes(func, args, named)
        return self._known[key]


class Reads(TorchFunctionMode):
    """Waits where a tensor is read on the host by one of the methods that copy it."""

    def __init__(self, wait: Callable[[], None]) -> None:
        super().__init__()
        self._wait = wait

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of torch."""
        if getattr(func, "__name__", "") in _READ:
            self._wait()
        return func(*args, **(kwargs or {}))


def _is_mask(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.bool, torch.uint8)


def _outline(one: Any) -> Hashable:
    """Return what decides the shape of a result."""
    return (one.dtype, one.size(), one.stride()) if isinstance(one, Tensor) else (type(one), str(one))


def _shapes(func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Return the results of an operation without their values."""
    bare_args, bare_named = tree_map_only(Tensor, _bare, (args, dict(named)))
    if "device" in bare_named:
        bare_named["device"] = torch.device("meta")
    return func(*bare_args, **bare_named)


def _bare(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def _made(bare: Tensor) -> Tensor:
    made = torch.empty_strided(bare.size(), bare.stride(), dtype=bare.dtype)
    if made.dtype is torch.bool:
        return made.fill_(True)
    if made.is_floating_point():
        return made.fill_(float("nan"))
    return made.fill_(min(_POISON, torch.iinfo(made.dtype).max))
