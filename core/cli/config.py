"""`core config show | explain`: what is set, by whom, and what an option means."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from core.api.errors import ConfigError, CoreError
from core.cli.help import explain, find_option
from core.config.dialects import describe, lead, unknown_flags
from core.config.fields import option_fields
from core.config.flags import add_option_flags
from core.config.load import LoadedOptions, load_options
from core.config.option_field import OptionField
from core.suggest import nearest
from core.terminal.tables import table

if TYPE_CHECKING:
    from core.selection.resolver import Resolution

Row = tuple[str, Any, str]
"""Path, value, source."""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "config",
        help="Show options, their values and where each comes from.",
        description="Alone: `core config show --resolved`; what is set, if nothing can be chosen for it.",
    )
    parser.set_defaults(run=run_alone, json=False, only_set=False, resolved=True)
    actions = parser.add_subparsers(metavar="ACTION")
    show = actions.add_parser("show", help="Print every option with its value and source.")
    show.add_argument("--json", action="store_true", help="Print JSON.")
    show.add_argument("--set", action="store_true", dest="only_set", help="Leave out defaults.")
    _add_resolved(show)
    add_option_flags(show, positional_model=True)
    show.set_defaults(run=run_show)
    explaining = actions.add_parser(
        "explain", help="Explain one option, and its value from the environment and the file."
    )
    # A flag may be given as it is typed elsewhere, dashes included.
    explaining.spellings.update({f"--{name}": name for field in option_fields() for name in field.names})
    explaining.foreign = _as_names
    explaining.add_argument("name", metavar="NAME", help="A flag, an environment variable or a dotted path.")
    _add_resolved(explaining)
    explaining.set_defaults(run=run_explain)


def _as_names(words: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the words with flags of other servers as names."""
    foreign = [word for word in unknown_flags(words, known) if find_option(word) or describe(word) is not None]
    return [word.removeprefix("--") if word in foreign else word for word in words]


def _add_resolved(parser: argparse.ArgumentParser) -> None:
    text = "Choose plugins as `serve` would, and show what core and the plugins made of the options."
    parser.add_argument("--resolved", action="store_true", help=text)


def run_alone(args: argparse.Namespace) -> int:
    """Print the options in force; those that are set where no start is possible, with the reason."""
    try:
        return run_show(args)
    except CoreError as error:
        args.resolved = False
        status = run_show(args)
        sys.stdout.flush()
        print(f"core: as set, for nothing could be chosen: {error}", file=sys.stderr)
        return status


def run_show(args: argparse.Namespace) -> int:
    """Print the options."""
    rows = [row for row in _rows(args) if row[2] != "default" or not args.only_set]
    if args.json:
        print(json.dumps({path: {"value": value, "source": source} for path, value, source in rows}, indent=2))
        return 0
    print(table(("option", "value", "source"), [(path, _text(value), source) for path, value, source in rows]))
    return 0


def _rows(args: argparse.Namespace) -> list[Row]:
    loaded = load_options(args)
    if not args.resolved:
        return [_row(loaded, field) for field in option_fields()]
    from core.selection.resolver import resolve

    return resolved_rows(loaded, resolve(loaded.options))


def _row(loaded: LoadedOptions, field: OptionField) -> Row:
    value = getattr(getattr(loaded.options, field.section), field.name)
    return field.path, _shown(field, value), _source(loaded, field)


def resolved_rows(loaded: LoadedOptions, resolution: Resolution) -> list[Row]:
    """Return every option with the value in force: as set, as a plugin's patch changed it, or as core decided."""
    patched = {patch.path: f"plugin {patch.owner}: {patch.reason}" for patch in resolution.patches}
    decided = _decisions(resolution)
    rows: list[Row] = []
    for field in option_fields():
        value = getattr(getattr(resolution.config.options, field.section), field.name)
        source = patched.get(field.path) or _source(loaded, field)
        if field.path in decided and value in (None, "auto", []) and decided[field.path] != value:
            value, source = decided[field.path], "core"
        rows.append((field.path, _shown(field, value), source))
    return rows


def _decisions(resolution: Resolution) -> dict[str, Any]:
    """Return what core decided where nobody did."""
    from core.plugins.kinds import every_kind

    config = resolution.config
    chosen = {
        f"select.{kind.option}": plugin.name
        for group, kind in every_kind().items()
        if kind.option and (plugin := config.plan.one(group))
    }
    return chosen | {
        "model.dtype": config.dtype,
        "model.max_model_len": config.max_model_len,
        "model.model": config.files.reference,
        "model.served_model_name": config.files.name,
        "kv.kv_dtype": config.kv_dtype,
        "kv.block_size": config.block_size,
    }


def _shown(field: OptionField, value: Any) -> Any:
    return "<hidden>" if field.secret and value is not None else value


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _source(loaded: LoadedOptions, field: OptionField) -> str:
    inner = {source for path, source in loaded.sources.items() if path.startswith(f"{field.path}.")}
    return ", ".join(sorted(inner)) or loaded.sources[field.path]


def run_explain(args: argparse.Namespace) -> int:
    """Print what one option means, every way to set it, and its value with its source."""
    foreign = describe(args.name) if find_option(args.name) is None else None
    if foreign is not None:
        print("\n".join(foreign))
        return 0
    field = _find(args.name)
    print("\n".join(explain(field)))
    ((_, value, source),) = [row for row in _rows(args) if row[0] == field.path]
    print(f"  value        {_text(value) or 'none'} ({source})")
    return 0


def _find(name: str) -> OptionField:
    field = find_option(name)
    if field is not None:
        return field
    known: Sequence[str] = [spelling for field in option_fields() for spelling in (*field.names, field.path)]
    wanted = name.removeprefix("--").replace("_", "-")
    hint = nearest(wanted, known) or "See `core config show`."
    raise ConfigError("CORE-C104", f"no option is called {name!r}.", hint=f"{hint} {lead()}".rstrip())
