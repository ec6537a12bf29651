"""Messages between the connector's two sides: one per step that moves something, one report in return."""

from __future__ import annotations

import msgspec


class Transfer(msgspec.Struct, array_like=True, frozen=True):
    """Copies of one step, as pairs of a host place and a device block.

    Attributes:
        number: Counts the messages, from 1.
        slots: Host places that the worker allocates; the same in every message.
        loads: `(place, block)` pairs, carried out before the forward pass.
        saves: `(place, block)` pairs, carried out after it. No place occurs twice in a message.
    """

    number: int
    slots: int
    loads: list[tuple[int, int]]
    saves: list[tuple[int, int]]


class Report(msgspec.Struct, array_like=True, frozen=True):
    """All copies of message `number` are done; they took this many microseconds."""

    number: int
    load_us: int
    save_us: int
