"""`core plugins install` and `uninstall`: pip in this interpreter's environment."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from typing import Any

from core.api.errors import PluginError


def add(actions: Any) -> None:
    """Add both actions."""
    for name, run, text in (
        ("install", run_install, "Install plugins with pip, into the environment that core runs in."),
        ("uninstall", run_uninstall, "Uninstall plugins with pip."),
    ):
        parser = actions.add_parser(name, help=text, description=f"{text} What follows `--` goes to pip.")
        parser.add_argument(
            "specs", nargs="+", metavar="SPEC", help="Bundle (cpu), plugin (hermes), folder, or a requirement of pip."
        )
        parser.add_argument("--dry-run", action="store_true", help="Print the command, run nothing.")
        parser.keep_rest("pip")
        parser.set_defaults(run=run)


def run_install(args: argparse.Namespace) -> int:
    """Run `pip install`."""
    from core.plugins.bundles import checkout, install_arguments

    return _pip(["install", *args.pip, *install_arguments(args.specs, checkout())], dry_run=args.dry_run)


def run_uninstall(args: argparse.Namespace) -> int:
    """Run `pip uninstall`; it asks nothing back, because the command says what to remove."""
    from core.plugins.bundles import checkout, distributions

    return _pip(["uninstall", "--yes", *args.pip, *distributions(args.specs, checkout())], dry_run=args.dry_run)


def _pip(words: list[str], *, dry_run: bool) -> int:
    command = [sys.executable, "-m", "pip", *words]
    print(shlex.join(command), flush=True)
    if dry_run:
        return 0
    status = subprocess.run(command, check=False).returncode
    if status:
        raise PluginError(
            "CORE-P320",
            f"pip ended with status {status}.",
            hint="Its lines above say why; `core plugins list` shows what is there.",
        )
    return 0
