"""Tapped values of a forward pass, in memory that stays: programs and graphs write it, participants read it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import torch

from core.api.errors import PluginError
from core.api.participants import Tap, TapPlace

if TYPE_CHECKING:
    from torch import Tensor


class Taps:
    """The taps of one model.

    Args:
        wanted: Names of those that somebody reads.

    Attributes:
        found: The taps by name, once there is memory for them.
    """

    def __init__(self, wanted: Collection[str] = ()) -> None:
        self._wanted = frozenset(wanted)
        self._places: dict[str, list[TapPlace]] = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self.found: dict[str, Tap] = {}

    def place(self, name: str, place: TapPlace, dtype: torch.dtype) -> Callable[[Tensor], None]:
        """Return what keeps the values of a layer until the next forward pass; of a tap that nobody reads, nothing."""
        if self._dtypes.setdefault(name, dtype) is not dtype:
            raise ValueError(f"{place.prefix} leaves {dtype} for '{name}', and other layers {self._dtypes[name]}")
        places = self._places.setdefault(name, [])
        places.append(place)
        return _Kept(self, name, len(places) - 1, place.width) if name in self._wanted else _nothing

    def check(self, reader: str, names: Collection[str], model: str) -> None:
        """Refuse a participant that reads what no layer leaves.

        Args:
            reader, model: Whose they are, for errors.

        Raises:
            PluginError: CORE-P250.
        """
        for name in names:
            if name not in self._places:
                left = f"; it has {', '.join(sorted(self._places))}" if self._places else ""
                raise PluginError(
                    "CORE-P250",
                    f"{reader} reads '{name}' of forward passes, and no layer of {model} leaves any{left}.",
                    hint="Start without it, or serve a model that has such layers.",
                )

    def allocate(self, tokens: int, device: torch.device) -> None:
        """Make memory for forward passes of up to so many tokens."""
        for name in self._wanted & self._places.keys():
            places = self._places[name]
            shape = (tokens, len(places), max(place.width for place in places))
            values = torch.full(shape, -1, dtype=self._dtypes[name], device=device)
            self.found[name] = Tap(tuple(places), values)


class _Kept:
    """Keeps what one layer leaves.

    Args:
        taps: Where it is kept; nothing is before there is memory.
        index: The layer's place in its tap.
    """

    def __init__(self, taps: Taps, name: str, index: int, width: int) -> None:
        self._taps, self._name, self._index, self._width = taps, name, index, width

    def __call__(self, values: Tensor) -> None:
        tap = self._taps.found.get(self._name)
        if tap is not None:
            tap.values[: len(values), self._index, : self._width].copy_(values)


def _nothing(values: Tensor) -> None:
    """Keep nothing: nobody reads it."""
