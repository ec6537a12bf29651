"""Plain tables: columns aligned, no frames, safe to paste into a report."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Return the rows as aligned text.

    Args:
        header: Column titles; empty for none.
        right: Indices of columns that are aligned to the right.
    """
    lines = [list(map(clean, row)) for row in ([header] if header else []) + list(rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))] if lines else []
    if header:
        lines.insert(1, ["-" * width for width in widths])
    return "\n".join(_line(cells, widths, right) for cells in lines)


def clean(text: str) -> str:
    """Replace control characters, so that a value from a file cannot drive the terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths))
    ]
    return "  ".join(padded).rstrip()
