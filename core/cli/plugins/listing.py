"""`core plugins list`: every installed plugin, from metadata and manifests; a broken one is a row, never the end."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from core.cli.plugins.naming import group_of
from core.cli.plugins.scope import scope_flags, visible
from core.config.sections import sections
from core.plugins.catalog import LEFT_OUT, Catalogue
from core.plugins.entry import Entry
from core.plugins.kinds import HOOKS_GROUP, KINDS, KINDS_GROUP, OPTION_SECTION, every_kind, kind_of
from core.server.plugin_routes.claims import some
from core.terminal.tables import table

HEADER = ("kind", "name", "distribution", "version", "api", "maturity", "state")


def add(actions: Any) -> None:
    """Add the action."""
    parser = actions.add_parser("list", help="List every installed plugin.")
    parser.add_argument("--kind", metavar="K", help="Only this kind: its group, with or without `core.`, or its name.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.fill_later(scope_flags)
    parser.set_defaults(run=run_list)


def run_list(args: argparse.Namespace) -> int:
    """Print one row for each installed plugin."""
    catalogue = visible(args)
    groups = [group_of(args.kind)] if args.kind else list(dict.fromkeys([*every_kind(), *catalogue.groups()]))
    rows = [row for group in groups for row in rows_of(catalogue, group)]
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    cells = [(*(str(row[key]) for key in HEADER[:-1]), _told(row)) for row in rows]
    print(table(HEADER, cells, optional=(5, 4, 3, 2)))
    return 0


def _told(row: dict[str, Any]) -> str:
    """Return a row's state, with the paths of the server that the plugin takes when it is chosen."""
    return f"{row['state']}; takes {', '.join(some(row['mounts']))}" if row.get("mounts") else str(row["state"])


def rows_of(catalogue: Catalogue, group: str) -> list[dict[str, Any]]:
    """Return a group's plugins as plain rows, in the catalogue's order; hook modules are not imported."""
    disabled = [_row(entry, "disabled") for entry in catalogue.disabled_entries() if entry.group == group]
    left_out = [_row(entry, f"left out: {LEFT_OUT}") for entry in catalogue.left_out(group)]
    return [*_usable_rows(catalogue, group), *disabled, *left_out]


def _usable_rows(catalogue: Catalogue, group: str) -> list[dict[str, Any]]:
    if group == HOOKS_GROUP:
        return [_row(entry, "not loaded") for entry in catalogue.entries(group)]
    if group == KINDS_GROUP:
        return _kind_rows(catalogue.entries(group))
    if group not in KINDS and group not in every_kind():
        return [_row(entry, "unknown kind: this core does not use it") for entry in catalogue.entries(group)]
    if not catalogue.entries(group):
        return []
    from core.plugins.drivers import load_descriptors

    candidates, failures = load_descriptors(catalogue.entries(group))
    rows = {one.entry: _row(one.entry, "ok", one.descriptor.api, one.descriptor.maturity) for one in candidates}
    for one in candidates:
        if mounts := getattr(one.descriptor, "mounts", ()):  # routes outside /x/NAME
            rows[one.entry]["mounts"] = list(mounts)
    if group == OPTION_SECTION.group:
        failures += [fault for fault in sections().faults if fault.entry in rows]
    rows |= {one.entry: _row(one.entry, f"{one.state}: {one.reason} ({one.code})") for one in failures}
    return [rows[entry] for entry in catalogue.entries(group)]


def _kind_rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the kinds that plugins define, each with its own API integer."""
    from core.plugins.defined import read_kinds

    found = read_kinds(entries)
    failed = {one.entry: f"{one.state}: {one.reason} ({one.code})" for one in found.faults}
    rows = []
    for entry in entries:
        kind = found.kinds.get(entry.name) if entry not in failed else None
        rows.append(_row(entry, failed.get(entry, "ok"), kind.api if kind else "-"))
    return rows


def _row(entry: Entry, state: str, api: int | str = "-", maturity: str = "-") -> dict[str, Any]:
    values = (kind_of(entry.group).label, entry.name, entry.dist, entry.version, api, maturity, state)
    return dict(zip(HEADER, values))
