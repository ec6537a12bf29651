"""`core bench latency | throughput | serve | startup | client`."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

EXAMPLES = """examples:
  core bench latency --model smollm2 --batch-size 1   time of one batch
  core bench throughput --model smollm2               tokens a second
  core bench serve --port 8000 --request-rate 4       load on a running server
  core bench startup --model smollm2                  seconds until it is ready
  core bench client                                   cost of the load generator

`core bench CASE --help` shows the flags of a case. With --plot, `latency` and
`serve` draw how their times are distributed.
"""

_CASES = ("latency", "throughput", "serve", "startup", "client")


def register(subparsers: Any) -> None:
    """Add the command with its cases. What a case needs to run is imported when it runs."""
    parser = subparsers.add_parser(
        "bench",
        help="Measure latency, throughput, a server, the start-up, or the client itself.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cases = parser.add_subparsers(metavar="CASE")
    for case in _CASES:
        import_module(f"core.cli.bench.{case}").register(cases)
