"""`core pull MODEL`: fetch a model, so that it can be served at once, and without a network."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from core.cli.models.common import FETCH, add_flags, opened


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "pull",
        help="Fetch a model, so that it can be served at once.",
        description="Fetch a model into the hub's cache. What is there already is not fetched again, and a download "
        "that was interrupted goes on where it was.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help="Hub id (organisation/name), or organisation/name:Q4_K_M for one GGUF file."
    )
    add_flags(parser, FETCH)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Fetch it and print where it is."""
    from core.cli.interruptible import interruptible
    from core.cli.models.files import sizes_of
    from core.cli.ui.progress import WeightProgress
    from core.config.sizes import format_size
    from core.plugins.checkpoints import find_files
    from core.plugins.stores import access_of

    options, selector = opened(args)
    with WeightProgress(what="fetching") as progress:
        access = access_of(options.hub, progress.update)
        source, revision = options.select.model_source, options.model.revision
        _, files = interruptible(lambda: find_files(selector, source, args.model, revision, access))
    size = format_size(sum(sizes_of(Path(files.path)).values()))
    print(f"{files.name}: {files.path} ({size}{f', revision {files.revision}' if files.revision else ''})")
    return 0
