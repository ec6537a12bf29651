"""Globs of ranges of numbers. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator


def globs(first: int, end: int) -> Iterator[str]:
    """Yield globs that together match the numbers from `first` to before `end`, and no others."""
    while first < end:
        size = 1
        while first % (size * 10) == 0 and first > 0 and first + size * 10 <= end:
            size *= 10
        digit, tens = first // size % 10, first // size // 10
        last = min(9, digit + (end - first) // size - 1)
        head = str(tens) if tens else ""
        yield f"{head}[{digit}-{last}]" + "[0-9]" * (len(str(size)) - 1)
        first += (last - digit + 1) * size
