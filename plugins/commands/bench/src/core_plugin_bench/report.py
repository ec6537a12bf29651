"""Printing and saving results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.api import ConfigError, Terminal, WholeFiles

UNITS: Mapping[str, str] = MappingProxyType(
    {
        "duration": "s",
        "elapsed_time": "s",
        "completed": "requests",
        "failed": "requests",
        "num_requests": "requests",
        "max_concurrent_requests": "requests",
        "request_throughput": "requests/s",
        "request_goodput": "requests/s",
        "output_throughput": "tokens/s",
        "total_token_throughput": "tokens/s",
        "max_output_tokens_per_s": "tokens/s",
        "chunks_per_second": "1/s",
        "max_chunks_per_second": "1/s",
        "client_cpu_share": "of a core",
        "cpu_us_per_chunk": "µs",
        "output_tokens_per_second": "tokens/s",
        "tokens_per_second": "tokens/s",
        "requests_per_second": "requests/s",
        "_tokens": "tokens",
        "_ms": "ms",
    }
)
"""Key of a figure, or the ending of one, which is then no part of its name -> its unit."""


def save(files: WholeFiles, path: str | Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON in one piece: a reader never sees half a file. Raises `ConfigError` CORE-C108."""
    target = Path(path)
    with _writing(target):
        files.write(target, json.dumps(result, indent=2).encode() + b"\n")
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


def show(terminal: Terminal, title: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows of name, figure and perhaps unit under a title."""
    print(f"\n{title}")
    print(terminal.table((), rows, right=(1,)), flush=True)


def show_summary(text: str) -> None:
    """Print the sentence that says what the figures come to."""
    print(f"\nsummary: {text}", flush=True)


def figure_rows(figures: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, figure and unit of the figures of a result; those that were not measured are left out."""
    rows = []
    for key, value in figures.items():
        if value is not None:
            name, unit = named(key)
            rows.append((name, value if isinstance(value, str) else number(value), unit))
    return rows


def named(key: str) -> tuple[str, str]:
    """Return the name and the unit of a figure by its key in a result."""
    for ending, unit in UNITS.items():
        if key == ending:
            return key.replace("_", " "), unit
        if ending.startswith("_") and key.endswith(ending):
            return key.removesuffix(ending).replace("_", " "), unit
    return key.replace("_", " "), ""


def number(value: float) -> str:
    """Return a figure with two decimals; whole numbers without."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
