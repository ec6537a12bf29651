"""Printing and saving results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.api.errors import ConfigError
from core.cli.files import write_whole
from core.cli.ui.tables import table


def save(path: str | Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON in one piece: a reader never sees half a file. Raises `ConfigError` CORE-C108."""
    target = Path(path)
    with _writing(target):
        write_whole(target, json.dumps(result, indent=2).encode() + b"\n")
    print(f"result written to {target}")


def append(path: str | Path, result: Mapping[str, Any]) -> None:
    """Add a result as one line of JSON at the end of a file. Raises `ConfigError` CORE-C108."""
    target = Path(path)
    with _writing(target), target.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    print(f"result added to {target}")


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ConfigError("CORE-C108", f"the result cannot be written to {target}: {error.strerror}.") from error


def show(title: str, rows: list[tuple[str, str]]) -> None:
    """Print a two-column table under a title."""
    print(f"\n{title}")
    print(table((), rows, right=(1,)), flush=True)


def number(value: float) -> str:
    """Return a figure with two decimals; whole numbers without."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
