"""Torch operations in a program, made again with the tensors of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_unflatten

from core_plugin_cpu.native.extents import Extent, Shape


@dataclass(slots=True)
class Turn:
    """One run of a program.

    Attributes:
        given: Inputs of the step, by name.
        results: What operations returned that others read.
    """

    tokens: int
    given: Mapping[str, Tensor]
    results: dict[int, Tensor] = field(default_factory=dict)


class Leaf(Protocol):
    """An argument.

    Attributes:
        steady: Whether it is the same in all steps of as many tokens.
    """

    @property
    def steady(self) -> bool: ...

    def value(self, turn: Turn) -> Any:
        """Return it as it is in this run."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number, a dtype or the like."""

    one: Any
    steady: bool = True

    def value(self, turn: Turn) -> Any:
        """Return it."""
        return self.one


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number that depends on the tokens."""

    extent: Extent
    steady: bool = True

    def value(self, turn: Turn) -> int:
        """Return it."""
        return self.extent.at(turn.tokens)


@dataclass(frozen=True, slots=True)
class Lasting:
    """A tensor in memory that stays: the program's, or a parameter's."""

    base: Tensor
    shape: Shape
    steady: bool = True

    def value(self, turn: Turn) -> Tensor:
        """Return as much of it as the step takes."""
        return self.shape.view(self.base, turn.tokens)


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor in an input of the step."""

    name: str
    shape: Shape
    steady: bool = False

    def value(self, turn: Turn) -> Tensor:
        """Return it."""
        return self.shape.view(turn.given[self.name], turn.tokens)


@dataclass(frozen=True, slots=True)
class Passing:
    """A tensor in what an operation before returned; None as shape: all of it."""

    number: int
    shape: Shape | None
    steady: bool = False

    def value(self, turn: Turn) -> Tensor:
        """Return it."""
        base = turn.results[self.number]
        return base if self.shape is None else self.shape.view(base, turn.tokens)


@dataclass(frozen=True, slots=True)
class Result:
    """Where a tensor goes that an operation returns.

    Attributes:
        base: The program's memory that native calls read it from; None: it is handed on as `number`.
    """

    number: int
    shape: Shape
    base: Tensor | None


class Operation:
    """A torch operation with its arguments, which is given what each step has for them.

    Args:
        dropped: Results that nobody reads afterwards.

    Attributes:
        nanoseconds: The least that it took in a timed run.
    """

    def __init__(
        self,
        name: str,
        func: Any,
        leaves: Sequence[Leaf],
        spec: Any,
        results: Sequence[Result],
        dropped: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.nanoseconds = 0
        self._func, self._leaves, self._spec = func, leaves, spec
        self._results, self._dropped = results, dropped
        self._changing = [index for index, leaf in enumerate(leaves) if not leaf.steady]
        self._tokens = -1
        self._values: list[Any] = []
        self._call: Any = None

    def run(self, turn: Turn) -> None:
        """Make it. Raises what torch raises."""
        if turn.tokens != self._tokens:
            self._values = [leaf.value(turn) if leaf.steady else None for leaf in self._leaves]
            self._call = None if self._changing else tree_unflatten(self._values, self._spec)
            self._places = [
                None if one.base is None else one.shape.view(one.base, turn.tokens) for one in self._results
            ]
            self._laid = [(one.shape.sizes(turn.tokens), one.shape.strides(turn.tokens)) for one in self._results]
            self._tokens = turn.tokens
        call = self._call
        if call is None:
            for index in self._changing:
                self._values[index] = self._leaves[index].value(turn)
            call = tree_unflatten(self._values, self._spec)
            for index in self._changing:
                self._values[index] = None
        made = self._func(*call[0], **call[1])
        if self._results:
            self._keep(made, turn)
        for number in self._dropped:
            turn.results.pop(number, None)

    def time(self, turn: Turn) -> None:
        """Make it, and note how long it took."""
        began = perf_counter_ns()
        self.run(turn)
        spent = perf_counter_ns() - began
        self.nanoseconds = min(spent, self.nanoseconds or spent)

    def _keep(self, made: Any, turn: Turn) -> None:
        tensors = (made,) if isinstance(made, Tensor) else tree_leaves(made)
        for result, place, (size, stride), one in zip(self._results, self._places, self._laid, tensors):
            if one.shape != size:
                raise ValueError(f"{self.name} gave {tuple(one.shape)} instead of {size}")
            if place is not None:
                place.copy_(one)
            elif not self._func.is_view and (one.stride() == stride or result.shape.fits(one, turn.tokens)):
                turn.results[result.number] = one
            else:
                # Others are cut from it by where its elements were expected; and what is a copy of many tokens is a
                # view of one, in memory that may be written before they read it.
                laid = torch.empty_strided(size, stride, dtype=one.dtype)
                turn.results[result.number] = laid.copy_(one)
