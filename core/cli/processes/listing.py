"""`core ps`: the servers of this user that are running."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from typing import Any

from core.cli.ui.tables import table

HEADER = ("model", "url", "pid", "up")


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "ps",
        help="List the servers of this user that are running.",
        description="List the servers that this user started with `core serve` on this machine.",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print one line for each server."""
    from core.server.registry import running_servers

    servers = running_servers()
    if args.json:
        print(json.dumps([asdict(server) for server in servers], indent=2))
        return 0
    now = time.time()
    rows = [(one.model, one.url, str(one.pid), duration(now - one.started)) for one in servers]
    print(table(HEADER, rows) if rows else "no server is running")
    return 0


def duration(seconds: float) -> str:
    """Return a length of time in its two largest units: `3 d 4 h`, `12 s`."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for name, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts or name == "s":
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])
