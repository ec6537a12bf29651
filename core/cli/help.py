"""Help in layers for commands that take every option: a short page, all of it, one section, or one option."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from core.api.errors import ConfigError
from core.config.fields import find_field, option_fields, section_help
from core.config.option_field import OptionField
from core.config.parser import CoreParser
from core.suggest import nearest

if TYPE_CHECKING:
    from core.plugins.catalog import Catalogue
    from core.plugins.entry import Entry

COMMON = (
    *("model.served_model_name", "model.dtype", "model.max_model_len", "kv.kv_memory", "scheduler.max_num_seqs"),
    *("select.platform", "select.attention_backend", "select.tool_parser", "server.host", "server.port"),
    "server.api_key",
)
"""Options that the short page of help shows."""

PLUGINS = "plugins"
"""Section of the options that plugins declare."""

_INDENT = " " * 6


def add_help_flag(parser: CoreParser, *, without: Container[str] = ()) -> None:
    """Add `--help`, `--help=all`, `--help=SECTION` and `--help=FLAG` in the place of argparse's own.

    Args:
        without: Paths of options that mean nothing to the command and are left out of the short page.
    """
    parser.add_argument(
        "-h",
        "--help",
        nargs="?",
        const="",
        action=_Help,
        without=without,
        default=argparse.SUPPRESS,
        metavar="all|SECTION|FLAG",
        help="Show the common flags, all of them, a section, or one flag.",
    )


class _Help(argparse.Action):
    def __init__(self, *args: Any, without: Container[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._without = without

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> NoReturn:
        print(page(parser, str(values), without=self._without))
        sys.exit(0)


def page(parser: argparse.ArgumentParser, topic: str, *, without: Container[str] = ()) -> str:
    """Return the page for a topic: empty, `all`, a section or a flag, environment variable or path.

    Raises:
        ConfigError: CORE-C104 with the nearest topic.
    """
    wanted = topic.strip().lower()
    if not wanted:
        return "\n".join(_short(parser, without))
    if wanted == "all":
        sections = [line for name in section_help() for line in _section(name)]
        return "\n".join([*_head(parser), *sections, *_plugin_section(), *_general(parser)])
    if wanted in section_help():
        return "\n".join(_section(wanted))
    if wanted == PLUGINS:
        return "\n".join([*_section("select"), *_plugin_section()])
    return "\n".join(_one(topic))


def find_option(name: str) -> OptionField | None:
    """Return the option that a flag, environment variable or path names, or None."""
    wanted = name.removeprefix("--").removeprefix("no-").lower()
    variables = (field for field in option_fields() if name.upper().replace("-", "_") in field.envs)
    return next(variables, None) or find_field(wanted) or find_field(wanted.removeprefix("core_"))


def explain(field: OptionField) -> list[str]:
    """Return lines that say what one option means and every way to set it."""
    return [
        f"{field.path}: {field.description}",
        f"  flags        {', '.join(spellings(field))}",
        f"  environment  {', '.join(field.envs)}",
        f"  file         {field.path}",
        f"  allowed      {field.allowed}{', or nothing' if field.optional else ''}",
        f"  default      {field.default_text or 'none'}",
        *_installed(field),
    ]


def _installed(field: OptionField) -> Iterator[str]:
    """Yield who could be named, with the owner of each."""
    from core.plugins.catalog import Catalogue
    from core.plugins.kinds import kind_chosen_by

    kind = kind_chosen_by(field.name)
    if kind is None:
        return
    found = Catalogue.scan().entries(kind.group)
    yield f"  installed    {', '.join(f'{entry.name} ({entry.owner})' for entry in found) or 'none'}"


def spellings(field: OptionField) -> list[str]:
    """Return an option's flags as help shows them."""
    return [f"--[no-]{name}" if field.kind == "bool" else f"--{name}" for name in field.names]


def _short(parser: argparse.ArgumentParser, without: Container[str]) -> Iterator[str]:
    yield from _head(parser)
    yield "common flags:"
    for field in option_fields():
        if field.path in COMMON and field.path not in without:
            yield from _entry(field)
    yield from _general(parser)
    yield ""
    yield f"more: --help=all, --help=SECTION ({', '.join((*section_help(), PLUGINS))}), --help=FLAG"


def _head(parser: argparse.ArgumentParser) -> list[str]:
    positional = any(action.dest == "model.model" and not action.option_strings for action in parser._actions)
    return [
        f"usage: {parser.prog} {'[MODEL] ' if positional else ''}[--FLAG VALUE ...]",
        "",
        parser.description or "",
        "flag > CORE_* environment > --config file > default",
        "",
        f"  {'MODEL' if positional else '--model'}  alias, file, directory or hub id; none: the default model",
        "",
    ]


def _general(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the flags that are not options of the engine."""
    paths = {field.path for field in option_fields()}
    yield ""
    yield "general:"
    for action in parser._actions:
        if action.option_strings and action.dest not in paths:
            metavar = f" {action.metavar}" if action.metavar and action.nargs != 0 else ""
            yield f"  {', '.join(action.option_strings)}{metavar}"
            yield f"{_INDENT}{action.help or ''}"


def _section(name: str) -> Iterator[str]:
    yield f"{name}: {section_help()[name]}"
    for field in option_fields():
        if field.section == name:
            yield from _entry(field)
    yield ""


def _entry(field: OptionField) -> Iterator[str]:
    yield f"  {', '.join(spellings(field))} {field.placeholder}".rstrip()
    yield f"{_INDENT}{field.description}"
    default = f", default {field.default_text}" if field.default_text else ""
    yield f"{_INDENT}[{field.env}, {field.path}{default}]"


def _plugin_section() -> Iterator[str]:
    yield f"{PLUGINS}: options that installed plugins declare, as --opt NAME.KEY=VALUE"
    for _, _, lines in _plugin_options():
        yield from lines
    yield ""


def _plugin_options() -> Iterator[tuple[str, str, list[str]]]:
    """Yield plugin, `PLUGIN.KEY` and its lines for every option of every installed plugin; one that fails says so."""
    from core.api.errors import PluginError
    from core.plugins.catalog import Catalogue
    from core.plugins.drivers import load_descriptors
    from core.plugins.kinds import HOOKS_GROUP, every_kind
    from core.plugins.options import option_rows

    catalogue = Catalogue.scan()
    for group in every_kind():
        if group == HOOKS_GROUP or not catalogue.entries(group):
            continue
        for candidate in load_descriptors(catalogue.entries(group))[0]:
            plugin = _called(candidate.entry, catalogue)
            try:
                rows = option_rows(candidate)
            except PluginError as error:
                yield plugin, plugin, [f"  {plugin}: its options cannot be shown: {error}"]
                continue
            for row in rows:
                yield plugin, f"{plugin}.{row[0]}", _option_lines(plugin, candidate.entry, row)


def _called(entry: Entry, catalogue: Catalogue) -> str:
    """Return a plugin's name, with its distribution where another one has the name too."""
    from core.plugins.known import normalise

    owners = {normalise(one.dist) for one in catalogue.every() if one.name == entry.name}
    return f"{entry.name}@{normalise(entry.dist)}" if len(owners) > 1 else entry.name


def _option_lines(plugin: str, entry: Entry, row: tuple[str, str, str]) -> list[str]:
    key, default, description = row
    path = f"runtime.plugin_options.{plugin}.{key}"
    twins = f"[CORE_PLUGIN_OPTIONS (JSON), {path}, default {default}; plugin {entry.name} of {entry.owner}]"
    text = [f"{_INDENT}{description}"] if description else []
    return [f"  --opt {plugin}.{key}=VALUE", *text, f"{_INDENT}{twins}"]


def _one(topic: str) -> Iterable[str]:
    field = find_option(topic)
    if field is not None:
        return explain(field)
    options = list(_plugin_options())
    found = [
        line
        for plugin, option, lines in options
        for line in lines
        if topic in (option, plugin, plugin.partition("@")[0])
    ]
    if found:
        return found
    names = [option for _, option, _ in options]
    known = [*section_help(), PLUGINS, "all", *names, *(name for field in option_fields() for name in field.names)]
    hint = nearest(topic.removeprefix("--"), known) or f"Sections: {', '.join((*section_help(), PLUGINS))}."
    raise ConfigError("CORE-C104", f"there is no help on {topic!r}.", hint=hint)
