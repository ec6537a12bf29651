"""Printing and saving results."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.cli.ui import table


def save(path: str | Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON in one piece: a reader never sees half a file."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    partial.replace(target)
    print(f"result written to {target}")


def append(path: str | Path, result: Mapping[str, Any]) -> None:
    """Add a result as one line of JSON at the end of a file."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    print(f"result added to {target}")


def show(title: str, rows: list[tuple[str, str]]) -> None:
    """Print a two-column table under a title."""
    print(f"\n{title}")
    print(table((), rows, right=(1,)), flush=True)


def number(value: float) -> str:
    """Return a figure with two decimals; whole numbers without."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
