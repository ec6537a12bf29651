"""Plain tables: columns aligned, no frames, safe to paste into a report, and no wider than the terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

_GAP = 2
_LEGIBLE = 24
"""Characters of a cell that still say something; columns are left out before more is cut off."""


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    optional: Sequence[int] = (),
    width: int | None = None,
) -> str:
    """Return the rows as aligned text. Where there is no room, columns are left out, and long cells end with `…`.

    Args:
        header: Column titles; empty for none.
        right: Indices of columns that are aligned to the right; figures, which are shortened last.
        optional: Indices of columns that may be left out, the first one first.
        width: Most characters of a line; default: `room()`.
    """
    lines = [list(map(clean, row)) for row in ([header] if header else []) + list(rows)]
    widths = {column: max(len(line[column]) for line in lines) for column in range(len(lines[0]))} if lines else {}
    if (most := width or room()) is not None:
        _leave_out(widths, right, optional, most)
        _narrow(widths, right, most)
    if header:
        lines.insert(1, ["-" * widths.get(column, 0) for column in range(len(header))])
    return "\n".join(_line(cells, widths, right) for cells in lines)


def room() -> int | None:
    """Return the characters of a line: `COLUMNS`, or the terminal's; None for a pipe or a file, which has room."""
    if not os.environ.get("COLUMNS") and not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def shortened(text: str, width: int | None) -> str:
    """Return a text of at most `width` characters; None for any number."""
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"


def clean(text: str) -> str:
    """Replace control characters, so that a value from a file cannot drive the terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _leave_out(widths: dict[int, int], right: Sequence[int], optional: Sequence[int], most: int) -> None:
    """Take columns away until the others are legible."""
    for column in optional:
        legible = {one: size if one in right else min(size, _LEGIBLE) for one, size in widths.items()}
        if _total(legible) <= most:
            return
        del widths[column]


def _narrow(widths: dict[int, int], right: Sequence[int], most: int) -> None:
    """Take from the widest column until the line fits; from figures, if there is nothing else."""
    for column in widths:
        widths[column] = min(widths[column], most)
    while _total(widths) > most and max(widths.values()) > 1:
        texts = [one for one, size in widths.items() if one not in right and size > 1]
        widths[max(texts or widths, key=lambda one: widths[one])] -= 1


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _line(cells: Sequence[str], widths: dict[int, int], right: Sequence[int]) -> str:
    padded = []
    for column, width in widths.items():
        cell = shortened(cells[column], width)
        padded.append(cell.rjust(width) if column in right else cell.ljust(width))
    return (" " * _GAP).join(padded).rstrip()
