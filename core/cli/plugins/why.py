"""`core plugins why`: choose as `serve` would, and explain every choice."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from core.api.errors import CoreError
from core.cli.plugins.scope import option_flags
from core.terminal.tables import clean, room, shortened, table

if TYPE_CHECKING:
    from core.config.resolved import Options
    from core.selection.report import SelectionReport
    from core.selection.resolver import Resolver

HEADER = ("", "plugin", "distribution", "score", "why")


def add(actions: Any) -> None:
    """Add the action."""
    parser = actions.add_parser("why", help="Choose as `serve` would, and explain every choice.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.fill_later(partial(option_flags, positional_model=True))
    parser.set_defaults(run=run_why)


def run_why(args: argparse.Namespace) -> int:
    """Resolve without starting anything and print every selection, also those before a failure."""
    from core.config.load import load_options
    from core.selection.resolver import Resolver

    options: Options = load_options(args).options
    resolver = Resolver(options)
    try:
        resolution = resolver.run()
    except CoreError as error:
        if not args.json:
            _print(resolver)
            raise
        print(json.dumps({**_explained(resolver), "error": error.to_dict()}, indent=2))
        return 1
    if args.json:
        config = resolution.config.model_dump(mode="json", include={"dtype", "kv_dtype", "max_model_len", "block_size"})
        plan = {"digest": resolution.config.plan.digest, **resolution.config.plan.model_dump(mode="json")}
        patches = [str(patch) for patch in resolution.patches]
        print(json.dumps({**_explained(resolver), "config": config, "patches": patches, "plan": plan}, indent=2))
        return 0
    _print(resolver)
    for patch in resolution.patches:
        print(f"changed: {patch}")
    return 0


def _explained(resolver: Resolver) -> dict[str, Any]:
    return {
        "selections": [report.to_dict() for report in resolver.reports],
        "warnings": [problem.model_dump() for problem in resolver.warnings],
    }


def _print(resolver: Resolver) -> None:
    print(choices_text(resolver.reports))
    for problem in resolver.warnings:
        print(f"warning: {problem.code} {problem.message}")


def choices_text(reports: Sequence[SelectionReport]) -> str:
    """Return every selection under a line with what was chosen for what, and how; columns are those of all."""
    cells = [line for report in reports for line in report.cells()]
    header, *lines = table(HEADER, cells, right=(3,), optional=(2, 3)).splitlines()
    following = iter(lines[1:])
    text = [header]
    for report in reports:
        title = f"{report.title}{f': {report.how}' if report.how else ''}"
        text += [title, *islice(following, len(report.rows)), *(f"   {note}" for note in report.notes)]
    return "\n".join(shortened(clean(line), room()) for line in text)
