"""`core config show | explain`: what is set, by whom, and what an option means."""

from __future__ import annotations

import argparse
import json
from typing import Any

from core.api.errors import ConfigError
from core.config.fields import OptionField, option_fields
from core.config.flags import add_option_flags
from core.config.load import LoadedOptions, load_options
from core.config.parser import nearest


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("config", help="Show options, their values and where each comes from.")
    actions = parser.add_subparsers(metavar="ACTION")
    show = actions.add_parser("show", help="Print every option with its value and source.")
    show.add_argument("--json", action="store_true", help="Print JSON.")
    show.add_argument("--set", action="store_true", dest="only_set", help="Leave out defaults.")
    add_option_flags(show)
    show.set_defaults(run=run_show)
    explain = actions.add_parser("explain", help="Explain one option.")
    # A flag may be given as it is typed elsewhere, dashes included.
    explain.spellings.update({f"--{name}": name for field in option_fields() for name in field.names})
    explain.add_argument("name", metavar="NAME", help="A flag, an environment variable or a dotted path.")
    explain.set_defaults(run=run_explain)


def run_show(args: argparse.Namespace) -> int:
    """Print the options."""
    rows = [row for row in _rows(load_options(args)) if row[2] != "default" or not args.only_set]
    if args.json:
        print(json.dumps({path: {"value": value, "source": source} for path, value, source in rows}, indent=2))
        return 0
    from core.cli.ui import table

    print(
        table(("option", "value", "source"), [(path, "" if v is None else str(v), source) for path, v, source in rows])
    )
    return 0


def _rows(loaded: LoadedOptions) -> list[tuple[str, Any, str]]:
    rows = []
    for field in option_fields():
        value = getattr(getattr(loaded.options, field.section), field.name)
        shown = "<hidden>" if field.secret and value is not None else value
        rows.append((field.path, shown, _source(loaded, field)))
    return rows


def _source(loaded: LoadedOptions, field: OptionField) -> str:
    inner = {source for path, source in loaded.sources.items() if path.startswith(f"{field.path}.")}
    return ", ".join(sorted(inner)) or loaded.sources[field.path]


def run_explain(args: argparse.Namespace) -> int:
    """Print what one option means, and every way to set it."""
    field = _find(args.name)
    print(f"{field.path}: {field.description}")
    print(f"  flags        {', '.join(_spellings(field))}")
    print(f"  environment  {field.env}")
    print(f"  file         {field.path}")
    print(f"  allowed      {field.allowed}{', or nothing' if field.optional else ''}")
    print(f"  default      {'none' if field.default is None else field.default}")
    return 0


def _spellings(field: OptionField) -> list[str]:
    return [f"--[no-]{name}" if field.kind == "bool" else f"--{name}" for name in field.names]


def _find(name: str) -> OptionField:
    wanted = name.removeprefix("--").removeprefix("no-").replace("_", "-")
    for field in option_fields():
        if wanted in (*field.names, field.path.replace("_", "-"), field.env.replace("_", "-")):
            return field
    known = [spelling for field in option_fields() for spelling in (*field.names, field.path)]
    raise ConfigError(
        "CORE-C104", f"no option is called {name!r}.", hint=nearest(wanted, known) or "See `core config show`."
    )
