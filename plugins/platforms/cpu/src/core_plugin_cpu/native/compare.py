"""Recordings of one forward pass for several numbers of tokens, compared: what of them depends on the tokens, and how.

A torch operation is made again with sizes that are a line through those of all recordings. What lies on no line, as a
slice of the first ten rows, would be wrong for some step, and is refused; so is whatever native calls take that differs
and is no slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core_plugin_cpu.native.extents import Shape, through
from core_plugin_cpu.native.partial import NotReplayableError
from core_plugin_cpu.native.recording import Recorder
from core_plugin_cpu.native.torchcalls import Count, Fixed, Given, Lasting, Leaf, Operation, Passing, Result
from core_plugin_cpu.native.uses import Call, Homes, Item, TorchCall, begin, sizes_of

_INPUTS = ("token_ids", "positions")
"""Inputs of a step that torch operations may read."""

Place = tuple[str, int | str, int]
"""A place in memory: its owner (`made`, `constant`, `step`, `outside`), which of them, and bytes behind its begin."""


class Places:
    """The memory of a recording, found by address.

    Args:
        first: That of the recording it is compared with; what a layer makes at its first call, and keeps, lies there.
    """

    def __init__(self, found: Recorder, first: Places | None = None) -> None:
        self._found, self._first = found, first
        self._partners: dict[int, int] = {}
        self._made = {begin(one): index for index, one in enumerate(found.made)}
        self._constants = {begin(one): index for index, one in enumerate(found.constants) if begin(one)}
        self._homes = Homes((), sizes_of([*found.made, *(one for one in found.constants if begin(one))]))

    def of(self, address: int) -> Place:
        """Return where an address is."""
        home = self._homes.at(address)
        if home is not None:
            made = self._made.get(home.begin)
            known: tuple[str, int] = ("constant", self._constants[home.begin]) if made is None else ("made", made)
            return (*known, address - home.begin)
        step = self._found.step
        name = None if step is None else step.places.get(address)
        if name is not None:
            return ("step", name, 0)
        kept = None if self._first is None else self._first.of(address)
        return ("outside", 0, address) if kept is None or kept[0] != "made" else ("kept", *kept[1:])

    def meets(self, place: Place, other: Place) -> bool:
        """Whether a place of the first recording is what `other` is in this one."""
        (kind, which, offset), (own_kind, own, own_offset) = place, other
        if kind == own_kind == "made" and isinstance(which, int) and isinstance(own, int):
            return self._partners.setdefault(own, which) == which and offset == own_offset
        return other == (("kept", which, offset) if kind == "made" else place)

    def tensor(self, tensor: Tensor) -> Place:
        """Return where a tensor's memory begins; for an input of the step, where the tensor does."""
        given = self._found.given(tensor)
        return ("step", *given) if given is not None else self.of(begin(tensor))


class Compared:
    """Comparison of the torch operations of several recordings.

    Attributes:
        size: Tokens of the first recording.
    """

    def __init__(self, recordings: Sequence[tuple[Recorder, Tensor]]) -> None:
        first = Places(recordings[0][0])
        self._places = [first, *(Places(found, first) for found, _ in recordings[1:])]
        self._sizes = [found.step.size for found, _ in recordings if found.step is not None]
        self._twins: dict[int, list[TorchCall]] = {}
        for fills in zip(*(found.fills for found, _ in recordings)):
            _same_numbers([one.flatten()[:1] for one in fills])
        for lifted in zip(*(found.lifted for found, _ in recordings)):
            _same_numbers(lifted)
        for calls in zip(*(found.items for found, _ in recordings)):
            self._take(calls)
        self._recordings = recordings

    def cuts(
        self, items: Sequence[Item], homes: Homes, memory: Tensor, moved: Mapping[int, int], out: Tensor
    ) -> list[tuple[int, Operation]]:
        """Return the torch operations among the items as a program makes them, and where.

        Args:
            homes: Memory that only the items use.
            memory: Where it lies in a program, as `moved` says: beginning -> offset.
            out: What the forward pass returns.
        """
        self._homes, self._memory, self._moved = homes, memory, moved
        self._out, self._numbers = out, dict[int, tuple[int, Shape]]()
        self._shape([out for _, out in self._recordings], "what the forward pass returns", still=True)
        last = {home.begin: home.torch[-1] for home in homes.all if home.torch and not home.lasting}
        cuts: list[tuple[int, Operation]] = []
        before = 0
        for index, item in enumerate(items):
            if isinstance(item, TorchCall):
                cuts.append((before, self._operation(index, item, last)))
            else:
                before += 1
        return cuts

    def _take(self, items: Sequence[Item]) -> None:
        first = items[0]
        if isinstance(first, TorchCall):
            twins = [one for one in items if isinstance(one, TorchCall)]
            if len(twins) < len(items) or any(one.func is not first.func for one in twins):
                raise _differs(first.name)
            self._twins[id(first)] = twins
            return
        calls = [one for one in items if not isinstance(one, TorchCall)]
        if len(calls) < len(items) or any(entry is not first[0] for entry, _ in calls):
            raise _differs(first[0].name)
        self._same(calls)

    def _same(self, calls: Sequence[Call]) -> None:
        """Refuse native calls that differ in anything but what a program changes from step to step."""
        entry = calls[0][0]
        words = [np.frombuffer(packed, dtype=np.int64) for _, packed in calls]
        for name, word in entry.fields.items():
            numbers = [int(one[word]) for one in words]
            if name in entry.pointers:
                same = self._meet([places.of(one) for places, one in zip(self._places, numbers)])
            elif entry.slots.get(name) in ("tokens", "rows"):
                line = through(numbers, self._sizes)
                same = line is not None and (not line.per_token or not line.constant)
            else:
                same = name in entry.slots or len(set(numbers)) == 1
            if not same:
                raise NotReplayableError(f"{name} of {entry.name} depends on the number of tokens: {numbers}")

    def _meet(self, found: Sequence[Place]) -> bool:
        """Whether these are one place, each as its recording has it."""
        return all(places.meets(found[0], one) for places, one in zip(self._places[1:], found[1:]))

    def _operation(self, index: int, item: TorchCall, last: Mapping[int, int]) -> Operation:
        twins = self._twins[id(item)]
        results = [self._result(item.name, [one.results[i] for one in twins]) for i in range(len(item.results))]
        if any(len(one.leaves) != len(item.leaves) or one.spec != item.spec for one in twins):
            raise _differs(item.name)
        leaves = [self._leaf(item.name, [one.leaves[i] for one in twins]) for i in range(len(item.leaves))]
        ended = {begin for begin, when in last.items() if when == index}
        dropped = [self._numbers[begin][0] for begin in ended if begin in self._numbers]
        return Operation(item.name, item.func, leaves, item.spec, results, dropped)

    def _leaf(self, name: str, values: Sequence[Any]) -> Leaf:
        first = values[0]
        if isinstance(first, Tensor):
            return self._tensor(name, values)
        if isinstance(first, int) and not isinstance(first, bool):
            line = through(values, self._sizes) if all(type(one) is int for one in values) else None
            if line is None:
                raise NotReplayableError(f"{name} takes a number that depends on the number of tokens: {list(values)}")
            return Count(line) if line.per_token else Fixed(first)
        if any(one != first for one in values):
            raise NotReplayableError(f"{name} takes what depends on the number of tokens: {list(values)}")
        return Fixed(first)

    def _tensor(self, name: str, tensors: Sequence[Tensor]) -> Leaf:
        first = tensors[0]
        places = [places.tensor(one) for places, one in zip(self._places, tensors)]
        kind, which, _ = places[0]
        if len({one.dtype for one in tensors}) > 1:
            raise _differs(name)
        if kind == "step":
            if any(one[:2] != places[0][:2] for one in places) or which not in _INPUTS:
                raise NotReplayableError(f"{name} reads the step's {which}")
            offsets = [place[2] // one.element_size() for place, one in zip(places, tensors)]
            return Given(str(which), self._shape(tensors, name, offsets=offsets, room=self._sizes))
        if not self._meet(places):
            raise NotReplayableError(f"{name} reads a tensor that is another one each time")
        if kind == "made":
            return self._made(name, tensors)
        offsets = [one.storage_offset() - first.storage_offset() for one in tensors]
        shape = self._shape(tensors, name, offsets=offsets)
        return Lasting(first, shape) if _moves(shape) else Fixed(first)

    def _made(self, name: str, tensors: Sequence[Tensor]) -> Leaf:
        home = begin(tensors[0])
        if home in self._numbers:
            number, whole = self._numbers[home]
            shape = self._shape(tensors, name, room=_elements(tensors))
            return Passing(number, None if shape == whole else shape)
        base = self._base(tensors[0])
        if base is None:
            raise NotReplayableError(f"{name} reads what nobody has written")
        return Lasting(base, self._shape(tensors, name, still=True, room=_elements(tensors)))

    def _result(self, name: str, tensors: Sequence[Tensor]) -> Result:
        base = self._base(tensors[0])
        shape = self._shape(tensors, name, still=base is not None)
        number = len(self._numbers)
        if base is None:
            self._numbers[begin(tensors[0])] = number, shape
        return Result(number, shape, base)

    def _base(self, tensor: Tensor) -> Tensor | None:
        """Return the lasting memory that a tensor lies in, from its beginning on; None if torch hands it on."""
        if begin(tensor) == begin(self._out):
            return torch.empty(0, dtype=tensor.dtype).set_(self._out.untyped_storage())  # type: ignore[call-overload]
        home = self._homes.at(begin(tensor))
        if home is None or home.begin not in self._moved:
            return None
        offset = self._moved[home.begin]
        return self._memory[offset : offset + home.size // tensor.element_size() * tensor.element_size()].view(
            tensor.dtype
        )

    def _shape(
        self,
        tensors: Sequence[Tensor],
        name: str,
        *,
        offsets: Sequence[int] | None = None,
        still: bool = False,
        room: Sequence[int] | None = None,
    ) -> Shape:
        """Return the shape that a tensor has in all recordings, and would have in one of a single token.

        Args:
            still: Whether its elements must lie where they lie, however many rows there are.
            room: Elements of its memory, which must hold it for a single token too.
        """
        offsets = [one.storage_offset() for one in tensors] if offsets is None else offsets
        shape = Shape.of(tensors, self._sizes, offsets)
        if (
            shape is None
            or (still and not shape.laid_still)
            or not shape.within(1, room and through(room, self._sizes))
        ):
            shown = ", ".join(str(tuple(one.shape)) for one in tensors)
            tokens = ", ".join(map(str, self._sizes))
            raise NotReplayableError(f"{name}: the sizes {shown} of {tokens} tokens do not follow the tokens")
        return shape


def _elements(tensors: Sequence[Tensor]) -> list[int]:
    """Return how many elements the tensors' memory holds."""
    return [one.untyped_storage().nbytes() // one.element_size() for one in tensors]


def compare(recordings: Sequence[tuple[Recorder, Tensor]]) -> Compared:
    """Compare recordings, the one to be made a program of first.

    Raises:
        NotReplayableError: They differ in more than sizes that follow the tokens.
    """
    if len({(len(found.items), len(found.fills), len(found.lifted)) for found, _ in recordings}) > 1:
        raise NotReplayableError("other operations are made for few tokens than for many")
    return Compared(recordings)


def _same_numbers(tensors: Sequence[Tensor]) -> None:
    """Refuse tensors of the host that differ: what is in them was taken from the step."""
    if not all(torch.equal(tensors[0], one) for one in tensors[1:]):
        raise NotReplayableError("a tensor of numbers of the host holds other numbers each time")


def _differs(name: str) -> NotReplayableError:
    return NotReplayableError(f"{name} is called for some numbers of tokens only, or with other things")


def _moves(shape: Shape) -> bool:
    """Whether a tensor is another one for other numbers of tokens."""
    return any(one.per_token for one in (*shape.size, *shape.stride, shape.offset))
