"""One kernel beside the reference form of its operation, on arguments with guards around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from core.api.descriptors import KernelSpec
from core.api.states import State
from core.ops.registry import REGISTRY
from core_testing.conformance.device_samples import KernelSample
from core_testing.conformance.outcome import NotApplicable, Unavailable, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import device_of, dtype_of
from core_testing.conformance.tools.ops import SHAPES, Maker, Named, OpShape, Sizes

_GAP = 8
"""Elements of guard before and behind every row, and rows of guard before and behind them all."""

_FLOAT32 = 1e-4
_LEAST_EPSILON = 5e-7


@dataclass(slots=True)
class Guarded:
    """A tensor inside a larger one whose other elements are NaN (zero for integers).

    Attributes:
        view: The tensor.
        whole: What it is a part of.
        state: Whose memory it is; None: it is an argument itself.
    """

    view: Tensor
    whole: Tensor
    state: State | None = None

    @classmethod
    def of(cls, argument: Tensor | State, *, sliced: bool) -> Guarded:
        """Copy a tensor between guards; `sliced` puts some between its rows too, so that it is not contiguous."""
        if isinstance(argument, State):
            return replace(cls.of(argument.memory, sliced=sliced), state=argument)
        tensor = argument
        fill = float("nan") if tensor.is_floating_point() else 0
        if sliced and tensor.dim() > 1:
            width = tensor[0].numel()
            whole = torch.full((len(tensor) + 2, width + 2 * _GAP), fill, dtype=tensor.dtype, device=tensor.device)
            # The rows' own elements are neighbours, so that the shape fits without a copy.
            view = whole[1:-1, _GAP : _GAP + width].view(tensor.shape)
        else:
            whole = torch.full((tensor.numel() + 2 * _GAP,), fill, dtype=tensor.dtype, device=tensor.device)
            view = whole[_GAP : _GAP + tensor.numel()].view(tensor.shape)
        view.copy_(tensor)
        return cls(view, whole)

    @property
    def argument(self) -> Tensor | State:
        """The argument that a form of an operation is given."""
        return self.view if self.state is None else replace(self.state, memory=self.view)

    def guards(self) -> Tensor:
        """Return the bytes of everything but the tensor."""
        mine = self.view.clone()
        self.view.zero_()
        found = self.whole.clone().flatten().view(torch.uint8)
        self.view.copy_(mine)
        return found


class KernelBench:
    """A kernel for one compute dtype.

    Raises:
        Unavailable: The kit cannot make arguments for its operation, or the device lacks a feature that it needs.
    """

    def __init__(self, subject: Subject, dtype: str) -> None:
        self.spec = subject.spec(KernelSpec)
        self.shape = shape_of(subject)
        self.device = device_of(subject, self.spec.needs)
        self.dtype = dtype_of(dtype)
        self.kernel: Callable[..., Any] = subject.impl()
        self.reference = reference_of(subject)

    def arguments(self, sizes: Sizes, *, seed: int = 0, values: Callable[[Tensor], Tensor] | None = None) -> list[Any]:
        """Return random arguments, contiguous and without guards."""
        rng = torch.Generator().manual_seed(seed)
        maker = Maker(self.dtype, rng) if values is None else Maker(self.dtype, rng, values)
        return [self._placed(one) for one in self.shape.make(maker, sizes)]

    def guarded(self, arguments: Sequence[Any], *, sliced: bool) -> list[Any]:
        """Return the arguments with guards around every tensor (as `Guarded`); those of rows may be slices."""
        return [
            Guarded.of(one, sliced=sliced and place in self.shape.rows) if isinstance(one, Tensor | State) else one
            for place, one in enumerate(arguments)
        ]

    def run(self, arguments: Sequence[Any]) -> list[Tensor]:
        """Call the kernel and return its outputs."""
        return outputs_of(call(self.kernel, arguments))

    def check(self, sizes: Sizes, arguments: Sequence[Any], given: Sequence[Any] | None = None, note: str = "") -> None:
        """Require that the kernel gives what the reference gives, and writes to what the reference writes to.

        Args:
            arguments: Contiguous arguments.
            given: The same values in other memory, for the kernel; default is a copy.
            note: What is special about them.
        """
        where = f"{self.spec.op} of {dict(sizes)} in {_name(self.dtype)}{f', {note}' if note else ''}"
        plain, exact = copies(arguments), [_widened(one) for one in arguments]
        form = outputs_of(call(self.reference, plain))
        expected = outputs_of(call(self.reference, exact))
        mine = copies(arguments) if given is None else list(given)
        found = self.run(mine)
        require(len(found) == len(form), f"{where}: it returns {len(found)} tensors, the reference {len(form)}")
        if all(isinstance(one, Tensor) and one.shape == like.shape for one, like in zip(found, form)):
            found = self.shape.settle(exact, [one.cpu() for one in found], expected)
        for number, (one, like, due) in enumerate(zip(found, form, expected)):
            self._require_close(one, like, due, f"{where}: output {number}")
        for place, held in enumerate(zip(mine, arguments, plain, exact)):
            tensors = [one for one in map(memory_of, held) if one is not None]
            if tensors:
                self._require_same_changes(tensors, f"{where}: it changes argument {place}")

    def _require_same_changes(self, tensors: Sequence[Tensor], where: str) -> None:
        """Hold an argument that the kernel was given, as it was before, to the reference's in the dtype and exactly."""
        mine, before, like, due = tensors
        if same_bits(like, before):
            require(same_bits(mine, before), f"{where}, which the reference leaves alone")
        else:
            self._require_close(mine, like, due, f"{where} in place, which")

    def _require_close(self, found: Tensor, like: Tensor, due: Tensor, where: str) -> None:
        require(isinstance(found, Tensor), f"{where} is a {type(found).__name__}")
        shape = tuple(like.shape)
        require(tuple(found.shape) == shape, f"{where} has shape {tuple(found.shape)}, due is {shape}")
        require(found.dtype == like.dtype, f"{where} is {found.dtype}, due is {like.dtype}")
        if not like.is_floating_point():
            require(torch.equal(found.cpu(), due.to(like.dtype).cpu()), f"{where} differs from the reference")
            return
        if not found.numel():
            return
        # Rounded as the output is, so that what overflows there is infinite here too.
        meant, mine = due.to(like.dtype).double().cpu(), found.double().cpu()
        strange = ~torch.isfinite(meant)
        same = torch.equal(torch.isfinite(mine), ~strange) and _same_strange(mine[strange], meant[strange])
        require(same, f"{where} is infinite or not a number elsewhere than the reference's")
        excess = (mine - meant).abs().masked_fill(strange, 0) - self._allowed(meant.masked_fill(strange, 0))
        worst = int(excess.argmax())
        off = float((mine - meant).abs().flatten()[worst])
        require(
            excess.flatten()[worst] <= 0,
            f"{where} is off by {off:.2g} where {float(meant.flatten()[worst]):.4g} is due",
        )

    def _allowed(self, meant: Tensor) -> Tensor:
        """Return the error that each element may have: rounding of the result, and of sums within its row."""
        epsilon = torch.finfo(self.dtype).eps
        rows = meant.abs().amax(-1, keepdim=True) if meant.dim() else meant.abs()
        return _FLOAT32 + max(_FLOAT32, epsilon) * meant.abs() + max(epsilon, _LEAST_EPSILON) * rows

    def _placed(self, one: Any) -> Any:
        if not isinstance(one, State):
            return one.to(self.device) if isinstance(one, Tensor) else one
        rows = one.rows
        twins = None if self.device.type == "cpu" else torch.from_numpy(rows.starts).to(self.device)
        rows = replace(rows, slots=rows.slots.to(self.device), fresh=rows.fresh.to(self.device), twins=twins)
        return State(one.memory.to(self.device), rows)


def shape_of(subject: Subject) -> OpShape:
    """Return how arguments of a kernel's operation are made: as the plugin's sample says, or as the kit does.

    Raises:
        Unavailable: Neither the kit nor a sample can make arguments.
        NotApplicable: It is a product.
    """
    op = subject.spec(KernelSpec).op
    if subject.spec(KernelSpec).forms:
        raise NotApplicable("a product: it has checks of its own")
    known, sample = SHAPES.get(op), _sample(subject)
    if sample is None:
        if known is None:
            raise Unavailable(subject.wants(KernelSample, f"the kit cannot make arguments for {op}"))
        return known
    large = sample.large or (known.large if known is not None else {})
    if sample.make is None:
        if known is None:
            raise Unavailable(f"the kit cannot make arguments for {op}: give '{sample.name}' a function `make`")
        return replace(known, sizes={**known.sizes, **sample.sizes}, large=large)
    return OpShape(sample.sizes, partial(_made, sample.make), tuple(sample.rows), large)


def reference_of(subject: Subject) -> Callable[..., Any]:
    """Return the form that a kernel is held to: core's of the operation, or the one that its descriptor names."""
    spec = subject.spec(KernelSpec)
    found: Callable[..., Any] = REGISTRY[spec.op].reference if spec.reference is None else subject.load(spec.reference)
    return found


def _sample(subject: Subject) -> KernelSample | None:
    return next(iter(subject.samples(KernelSample)), None)


def _made(make: Callable[[Maker, Sizes], Sequence[Any]], maker: Maker, sizes: Sizes) -> tuple[Any, ...]:
    """Return a sample's arguments; a dict at their end is passed by name."""
    *placed, last = make(maker, sizes)
    return (*placed, Named(last) if isinstance(last, dict) else last)


def call(form: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Call a form of an operation, with the last arguments by name if they have names."""
    *placed, last = arguments
    return form(*placed, **last) if isinstance(last, Named) else form(*placed, last)


def outputs_of(answer: Any) -> list[Tensor]:
    """Return an operation's answer as a list: a tensor, several, or nothing."""
    if answer is None:
        return []
    return list(answer) if isinstance(answer, tuple | list) else [answer]


def copies(arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments with tensors of their own."""
    return [_changed(one, torch.clone) for one in arguments]


def memory_of(argument: Any) -> Tensor | None:
    """Return the tensor that an operation may change in an argument; None if it has none."""
    if isinstance(argument, State):
        return argument.memory
    return argument if isinstance(argument, Tensor) else None


def views(arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments with the tensors that stand between guards."""
    return [one.argument if isinstance(one, Guarded) else one for one in arguments]


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Say whether two tensors have the same shape, dtype and bytes."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    one, other = (tensor.contiguous().flatten().view(torch.uint8) for tensor in (first, second))
    return torch.equal(one, other)


def within_rounding(first: Tensor, second: Tensor) -> bool:
    """Say whether numbers differ by a few units in the last place of their row's greatest; integers not at all."""
    if not first.is_floating_point() or first.shape != second.shape or not first.numel():
        return same_bits(first, second)
    one, other = first.double(), second.double()
    allowed = 4 * torch.finfo(first.dtype).eps * other.abs().amax(-1, keepdim=True)
    return bool(((one - other).abs() <= allowed).all())


def _widened(one: Any) -> Any:
    """Return a copy on the host, in float32: kernels of torch for other devices differ in what infinities become."""
    return _changed(one, lambda tensor: (tensor.float() if tensor.is_floating_point() else tensor).cpu().clone())


def _changed(one: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return an argument with another tensor in place of the one that it is or has."""
    if isinstance(one, State):
        return replace(one, memory=change(one.memory))
    return change(one) if isinstance(one, Tensor) else one


def _same_strange(mine: Tensor, meant: Tensor) -> bool:
    return torch.equal(torch.isnan(mine), torch.isnan(meant)) and torch.equal(
        mine.nan_to_num(0.0), meant.nan_to_num(0.0)
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
