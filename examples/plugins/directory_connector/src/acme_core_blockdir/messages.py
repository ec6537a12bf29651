"""What the two sides say to each other."""

from __future__ import annotations

import msgspec


class Transfer(msgspec.Struct, array_like=True, frozen=True):
    """Copies of one step, as pairs of a file's key and its device blocks, one of each cache group (0: none).

    Attributes:
        number: Counts the messages, from 1.
        size: Bytes of a block over all layers and cache groups.
        loads: Carried out before the forward pass.
        saves: Carried out after it.
    """

    number: int
    size: int
    loads: list[tuple[bytes, tuple[int, ...]]]
    saves: list[tuple[bytes, tuple[int, ...]]]


class Report(msgspec.Struct, array_like=True, frozen=True):
    """What became of the saves of message `number`; its loads are done."""

    number: int
    saved: int
    failed: int
