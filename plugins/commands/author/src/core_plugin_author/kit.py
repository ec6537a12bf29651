"""`core plugins test`: the conformance kit for one plugin."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import find_spec

from core.api import CommandHost, PluginError

LEVELS = ("L0", "L1", "L2", "L3")


class Kit:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._host = host

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.description = (
            "The same as: python -m pytest --core-plugin-conformance=NAME. Its exit status is pytest's: 0, everything "
            "passed; 1, a check failed; 4, there is no such plugin. What follows `--` goes to pytest."
        )
        name = parser.add_argument("name", metavar="NAME", help="Plugin, kind:plugin, or distribution.")
        name.completer = self._host.plugins.complete  # type: ignore[attr-defined]
        parser.add_argument(
            "--level", choices=LEVELS, help="Highest level to check; default: all that can be checked here."
        )
        parser.add_argument("--report", metavar="FILE", help="Write levels and outcomes as JSON.")
        self._host.options.add_rest(parser, "pytest")

    def run(self, args: argparse.Namespace) -> int:
        """Run pytest and return its status."""
        if find_spec("core_testing") is None:
            raise PluginError("CORE-P322", "the conformance kit is not installed.", hint="pip install core-testing")
        command = [sys.executable, "-m", "pytest", f"--core-plugin-conformance={args.name}"]
        command += [f"--core-conformance-level={args.level}"] if args.level else []
        command += [f"--core-conformance-report={args.report}"] if args.report else []
        command += args.pytest
        return subprocess.run(command, check=False).returncode
