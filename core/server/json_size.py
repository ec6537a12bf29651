"""How much a JSON text holds, counted in its bytes: what parsing it would cost, known before it is parsed."""

from __future__ import annotations

from typing import NamedTuple

MAX_ENTRIES = 2**20 + 2**18
"""Most values of arrays and objects together: a prompt of a million token ids, and what stands around it."""

MAX_CONTAINERS = 2**17
"""Most arrays and objects: 16,384 messages with parts and calls."""

MAX_MEMBERS = 2**18
"""Most members of objects: names cost several times what values cost."""

_PIECE = 2**16
_ESCAPES = (b"\\\\", b'\\"')


class Size(NamedTuple):
    """How many commas, opening brackets or braces, and colons there are."""

    commas: int = 0
    containers: int = 0
    colons: int = 0

    @property
    def fits(self) -> bool:
        """Whether it is within the bounds."""
        return self.commas < MAX_ENTRIES and self.containers <= MAX_CONTAINERS and self.colons <= MAX_MEMBERS


def fits(raw: bytes) -> bool:
    """Whether a JSON text is within the bounds.

    Commas of texts count for nothing, but to tell them from others takes time: only bodies with many are looked at
    twice.
    """
    return _count(raw).fits or _count_outside(raw).fits


def _count(raw: bytes) -> Size:
    return Size(raw.count(b","), raw.count(b"[") + raw.count(b"{"), raw.count(b":"))


def _count_outside(raw: bytes) -> Size:
    """Count outside of strings, until it is too much. In pieces, so that other threads go on in between."""
    found, inside, held = Size(), False, b""
    for start in range(0, len(raw), _PIECE):
        piece = (held + raw[start : start + _PIECE]).replace(_ESCAPES[0], b"")
        held = b"\\" if piece.endswith(b"\\") else b""  # what it escapes is in the next piece
        parts = piece.replace(_ESCAPES[1], b"").split(b'"')
        here = _count(b" ".join(parts[inside::2]))
        found = Size(*map(sum, zip(found, here, strict=True)))
        if not found.fits:
            break
        inside ^= len(parts) % 2 == 0
    return found
