"""`core bench latency | throughput | serve | startup | client`."""

from __future__ import annotations

import argparse
from importlib import import_module

from core.api import CommandHost

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


class Bench:
    """The command. What a case needs to run is imported when it runs."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._host = host

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the cases, each with its flags."""
        parser.description = None  # the cases say it
        parser.epilog = EXAMPLES
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        cases = parser.add_subparsers(metavar="CASE")
        for case in _CASES:
            import_module(f"core_plugin_bench.{case}").register(cases, self._host)
        self._parser = parser

    def run(self, args: argparse.Namespace) -> int:
        """Run the case that was typed; without one, say which there are."""
        if not hasattr(args, "case"):
            self._parser.print_help()
            return 0
        status: int = args.case(self._host, args)
        return status
