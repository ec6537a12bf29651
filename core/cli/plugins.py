"""`core plugins list | info | why`: what is installed, what a plugin says of itself, and why it is chosen.

Nothing here imports an implementation; a broken plugin is a row of the list, never the end of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from core.api.errors import CoreError, PluginError
from core.config.parser import CoreParser
from core.plugins.catalog import Catalogue, Entry, similar
from core.plugins.kinds import HOOKS_GROUP, KINDS, kind_of

if TYPE_CHECKING:
    from core.boot import Resolver
    from core.config.resolved import Options
    from core.plugins.drivers import Candidate

HEADER = ("kind", "name", "distribution", "version", "api", "maturity", "state")


class _OptionParser(CoreParser):
    """Adds a flag for every option when it is used: the other actions start faster without."""

    filled = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse with the option flags in place."""
        if not self.filled and self.get_default("run") is run_why:
            from core.config.flags import add_option_flags

            self.filled = True
            add_option_flags(self, positional_model=True)
        return super().parse_known_args(args, namespace)


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("plugins", help="List plugins and explain how they are chosen.")
    actions = parser.add_subparsers(metavar="ACTION", parser_class=_OptionParser)
    listing = actions.add_parser("list", help="List every installed plugin.")
    listing.add_argument("--kind", metavar="K", help="Only this kind: its group, with or without `core.`, or its name.")
    listing.add_argument("--json", action="store_true", help="Print JSON.")
    listing.set_defaults(run=run_list)
    info = actions.add_parser("info", help="Show what a plugin says of itself.")
    info.add_argument("name", metavar="NAME", help="name, name@distribution, or kind:name.")
    info.add_argument("--json", action="store_true", help="Print JSON.")
    info.set_defaults(run=run_info)
    why = actions.add_parser("why", help="Choose as `serve` would, and explain every choice.")
    why.add_argument("--json", action="store_true", help="Print JSON.")
    why.set_defaults(run=run_why)


def run_list(args: argparse.Namespace) -> int:
    """Print one row for each installed plugin."""
    catalogue = Catalogue.scan()
    groups = [_group(args.kind)] if args.kind else [*KINDS, *(set(catalogue.groups()) - set(KINDS))]
    rows = [row for group in groups for row in rows_of(catalogue, group)]
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    from core.cli.ui.tables import table

    print(table(HEADER, [tuple(str(row[key]) for key in HEADER) for row in rows]))
    return 0


def rows_of(catalogue: Catalogue, group: str) -> list[dict[str, Any]]:
    """Return a group's plugins as plain rows, in the catalogue's order; hook modules are not imported."""
    if group == HOOKS_GROUP:
        return [_row(entry, "not loaded") for entry in catalogue.entries(group)]
    if group not in KINDS:
        return [_row(entry, "unknown kind: this core does not use it") for entry in catalogue.entries(group)]
    if not catalogue.entries(group):
        return []
    from core.plugins.drivers import load_descriptors

    candidates, failures = load_descriptors(catalogue, group)
    rows = {one.entry: _row(one.entry, "ok", one.descriptor.api, one.descriptor.maturity) for one in candidates}
    rows |= {one.entry: _row(one.entry, f"failed: {one.reason} ({one.code})") for one in failures}
    return [rows[entry] for entry in catalogue.entries(group)]


def _row(entry: Entry, state: str, api: int | str = "-", maturity: str = "-") -> dict[str, Any]:
    values = (kind_of(entry.group).label, entry.name, entry.dist, entry.version, api, maturity, state)
    return dict(zip(HEADER, values))


def _group(text: str) -> str:
    for group, kind in KINDS.items():
        if text in (group, group.removeprefix("core."), kind.label, kind.label.replace(" ", "_"), kind.option):
            return group
    names = [group.removeprefix("core.") for group in KINDS]
    hint = similar(text, names) or f"Kinds: {', '.join(names)}."
    raise PluginError("CORE-P101", f"there is no kind of plugin called '{text}'.", hint=hint)


def run_info(args: argparse.Namespace) -> int:
    """Print everything that is known of the plugins of one name."""
    facts = [_facts(entry) for entry in _named(Catalogue.scan(), args.name)]
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    from core.cli.ui.tables import table

    print("\n\n".join(table((), [(key, _shown(value)) for key, value in one.items()]) for one in facts))
    return 0


def _named(catalogue: Catalogue, ask: str) -> list[Entry]:
    """Return the entries that `ask` names, of whatever kind; several kinds may share a name."""
    kind, _, ask = ask.rpartition(":")
    groups = [_group(kind)] if kind else catalogue.groups()
    name, _, dist = ask.partition("@")
    every = [entry for group in groups for entry in catalogue.entries(group)]
    found = [entry for entry in every if entry.name == name and dist in ("", entry.dist)]
    if not found:
        hint = similar(name, sorted({entry.name for entry in every})) or "See `core plugins list`."
        raise PluginError("CORE-P101", f"no plugin named '{ask}' is installed.", hint=hint)
    return found


def _facts(entry: Entry) -> dict[str, Any]:
    facts = {**rows_of(Catalogue([entry]), entry.group)[0], "entry point": f"{entry.group} {entry.value}"}
    if facts["state"] != "ok":
        return facts
    from core.plugins.drivers import load_descriptors

    (candidate,), _ = load_descriptors(Catalogue([entry]), entry.group)
    described = candidate.descriptor.model_dump(mode="json", exclude={"name", "api", "maturity", "options"})
    return facts | described | _options(candidate)


def _options(candidate: Candidate) -> dict[str, Any]:
    """Return the plugin's options with their defaults and descriptions."""
    if candidate.descriptor.options is None:
        return {"options": "none declared"}
    from core.plugins.drivers import load_impl

    fields = load_impl(candidate.descriptor.options, candidate.entry).model_fields
    return {
        f"option {name}": "required" if field.is_required() else f"{field.default!r}  {field.description or ''}".strip()
        for name, field in fields.items()
    }


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)


def run_why(args: argparse.Namespace) -> int:
    """Resolve without starting anything and print every selection, also those before a failure."""
    from core.boot import Resolver
    from core.config.load import load_options

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
    from rich.console import Console

    from core.plugins.report import render

    # Off a terminal nobody wraps lines by hand; a table that is cut at 80 columns is of no use in a report.
    Console(width=None if sys.stdout.isatty() else 200, highlight=False).print(render(resolver.reports))
    for problem in resolver.warnings:
        print(f"warning: {problem.code} {problem.message}")
