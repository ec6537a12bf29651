"""`core bench latency | throughput | serve | startup | client`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_CASES = ("latency", "throughput", "serve", "startup", "client")


def register(subparsers: Any) -> None:
    """Add the command with its cases. What a case needs to run is imported when it runs."""
    parser = subparsers.add_parser(
        "bench", help="Measure latency, throughput, a server, the start-up, or the client itself."
    )
    cases = parser.add_subparsers(metavar="CASE")
    for case in _CASES:
        import_module(f"core.cli.bench.{case}").register(cases)
