"""`core plugins info`: what a plugin says of itself."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from core.cli.plugins.listing import rows_of
from core.cli.plugins.naming import named
from core.cli.plugins.scope import scope_flags, visible
from core.plugins.catalog import Catalogue
from core.plugins.entry import Entry
from core.plugins.kinds import KINDS_GROUP
from core.terminal.tables import table

if TYPE_CHECKING:
    from core.plugins.drivers import Candidate


_SHOWN = ("name", "api", "maturity", "options", "fields")
"""Fields of a descriptor that have another place."""

_IN_A_LINE = 5
"""How many members of a list stand in one line."""


def add(actions: Any) -> None:
    """Add the action."""
    parser = actions.add_parser("info", help="Show what a plugin says of itself.")
    parser.add_argument("name", metavar="NAME", help="name, name@distribution, or kind:name.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.fill_later(scope_flags)
    parser.set_defaults(run=run_info)


def run_info(args: argparse.Namespace) -> int:
    """Print everything that is known of the plugins of one name."""
    catalogue = visible(args)
    facts = [_facts(catalogue, entry) for entry in named(catalogue, args.name)]
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    print("\n\n".join(table((), [row for fact in one.items() for row in _rows(*fact)]) for one in facts))
    return 0


def _facts(catalogue: Catalogue, entry: Entry) -> dict[str, Any]:
    facts = {**rows_of(catalogue.of(entry), entry.group)[0], "entry point": f"{entry.group} {entry.value}"}
    if facts["state"] != "ok":
        return facts
    if entry.group == KINDS_GROUP:
        return facts | _definition(entry)
    from core.plugins.drivers import load_descriptors

    (candidate,), _ = load_descriptors([entry])
    described = {key: value for key, value in candidate.descriptor.to_dict().items() if key not in _SHOWN}
    return facts | described | _sampling_fields(candidate) | _options(candidate)


def _sampling_fields(candidate: Candidate) -> dict[str, Any]:
    """Return the sampling parameters that the plugin declares."""
    fields = getattr(candidate.descriptor, "fields", ())
    return {f"field {one.name}": f"{one.values}, default {one.default}: {one.meaning}" for one in fields}


def _definition(entry: Entry) -> dict[str, Any]:
    """Return what a plugin defines a kind to be."""
    kind = entry.load()
    contract = kind.contract
    return {
        "summary": kind.summary,
        "label": kind.label,
        "accepted": [kind.first_api, kind.api],
        "descriptor": kind.descriptor,
        "protocol": contract.protocol if contract else None,
        "option": kind.flag or None,
        "template": kind.template or None,
        "checks": list(kind.checks),
    }


def _options(candidate: Candidate) -> dict[str, Any]:
    """Return the plugin's options with their defaults and descriptions."""
    if candidate.descriptor.options is None:
        return {"options": "none declared"}
    from core.plugins.options import option_rows

    return {
        f"option {name}": f"{default}  {description}".strip() for name, default, description in option_rows(candidate)
    }


def _rows(key: str, value: object) -> list[tuple[str, str]]:
    """Return the lines of a fact: of a long list several."""
    if not isinstance(value, list):
        return [(key, "-" if value is None else str(value))]
    texts = list(map(str, value))
    lines = [", ".join(texts[start : start + _IN_A_LINE]) for start in range(0, len(texts), _IN_A_LINE)]
    return [("" if number else key, line) for number, line in enumerate(lines or ["-"])]
