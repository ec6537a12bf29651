"""Command-line flags generated from `Options`, and options turned back into flags."""

from __future__ import annotations

import argparse
import json
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from core.config.dialects import translate
from core.config.fields import option_fields, section_help
from core.config.option_field import OptionField
from core.config.parser import CoreParser
from core.config.resolved import Options
from core.config.sections import plugin_sections


@dataclass(frozen=True, slots=True)
class FlagValue:
    """A value as it stood on the command line, and the flag that brought it."""

    flag: str
    value: Any


class _Store(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, FlagValue(option_string or str(self.metavar), values))


class _Extend(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        before: FlagValue | None = getattr(namespace, self.dest, None)
        items = [*(before.value if before else []), *split_list(values)]
        setattr(namespace, self.dest, FlagValue(option_string or self.dest, items))


class _Gather(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        before: FlagValue | None = getattr(namespace, self.dest, None)
        setattr(
            namespace, self.dest, FlagValue(option_string or self.dest, [*(before.value if before else []), values])
        )


class _Switch(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        flag = option_string or self.dest
        setattr(namespace, self.dest, FlagValue(flag, not flag.startswith("--no-")))


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated text, or of a JSON list of texts."""
    if text.lstrip().startswith("["):
        try:
            items = json.loads(text)
        except ValueError:
            items = None
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return items
    return [item.strip() for item in text.split(",") if item.strip()]


def add_option_flags(parser: CoreParser, *, positional_model: bool = False) -> None:
    """Add a flag for every option, `--config` and `--opt`.

    Values stay raw text here: `core.config.load.load_options` checks them together with those of the environment
    and the file, so that every mistake is reported in the same words.
    """
    if positional_model:
        parser.add_argument(
            "model.model",
            nargs="?",
            action=_Store,
            default=argparse.SUPPRESS,
            metavar="MODEL",
            help="Model reference: alias, file, directory or hub id; none: the default model.",
        )
    general = parser.add_argument_group("configuration", "flag > CORE_* environment > --config file > default")
    general.add_argument("--config", metavar="FILE", default=None, help="TOML or YAML file. [CORE_CONFIG]")
    add_plugin_flag(general)
    groups = {name: parser.add_argument_group(name, text) for name, text in section_help().items()}
    for field in option_fields():
        if not _is_taken(parser, field):
            _add(groups[field.section], field)
    parser.spellings.update(dotted_spellings())
    parser.foreign = translate


def add_plugin_flag(parser: argparse._ActionsContainer) -> None:
    """Add `--opt`."""
    parser.add_argument(
        "--opt",
        action="append",
        default=[],
        metavar="NAME.KEY=VALUE",
        help="Option of a plugin; the value is JSON or a plain text. Repeatable.",
    )


SCOPE = ("select.plugins", "select.disable_plugin", "select.plugin_file")
"""Options that say which plugins there are, without choosing among them."""


def add_scope_flags(parser: CoreParser) -> None:
    """Add the flags of `SCOPE`, and `--config`, for commands that choose nothing."""
    add_some_flags(parser, SCOPE, "plugins", "Which plugins there are, as for `core serve`.")


def add_some_flags(parser: CoreParser, paths: Container[str], title: str, text: str) -> None:
    """Add the flags of the options `paths`, and `--config`, as a group of a command's help."""
    group = parser.add_argument_group(title, text)
    group.add_argument("--config", metavar="FILE", default=None, help="TOML or YAML file. [CORE_CONFIG]")
    chosen = [field for field in option_fields() if field.path in paths]
    for field in chosen:
        _add(group, field)
    known = {spelling for field in chosen for name in field.names for spelling in (f"--{name}", f"--no-{name}")}
    parser.spellings.update({dotted: flag for dotted, flag in dotted_spellings().items() if flag in known})
    parser.foreign = parser.foreign or left_alone


def left_alone(words: Sequence[str], _: Container[str]) -> list[str]:
    """Return the words: of a command that takes few options, other servers have further names and nothing else."""
    return list(words)


def _is_taken(parser: CoreParser, field: OptionField) -> bool:
    """Say whether a command has flags of its own by the names of a plugin's option: there it has its other forms."""
    mine = field.section in plugin_sections()
    return mine and any(f"--{name}" in parser._option_string_actions for name in field.names)


def _add(group: argparse._ArgumentGroup, field: OptionField) -> None:
    names = [f"--{name}" for name in field.names]
    keywords: dict[str, Any] = {"dest": field.path, "default": argparse.SUPPRESS, "help": _help(field)}
    if field.kind == "bool":
        names = [spelling for name in field.names for spelling in (f"--{name}", f"--no-{name}")]
        group.add_argument(*names, action=_Switch, nargs=0, **keywords)
    elif field.kind == "list":
        group.add_argument(*names, action=_Extend, metavar=field.placeholder, **keywords)
    elif field.pairs:
        group.add_argument(*names, action=_Gather, metavar=field.placeholder, **keywords)
    elif field.bare is not None:
        group.add_argument(*names, action=_Store, nargs="?", const=field.bare, metavar=field.placeholder, **keywords)
    else:
        group.add_argument(*names, action=_Store, metavar=field.placeholder, **keywords)


def _help(field: OptionField) -> str:
    shown = f" (default: {field.default_text})" if field.default_text else ""
    return f"{field.description}{shown} [{field.env}]".replace("%", "%%")


def dotted_spellings() -> dict[str, str]:
    """Return `--section.name -> --name` for every name of every option, with the negations of switches."""
    spellings = {}
    for field in option_fields():
        for name in field.names:
            spellings[f"--{field.title}.{name}"] = f"--{name}"
            if field.kind == "bool":
                spellings[f"--no-{field.title}.{name}"] = spellings[f"--{field.title}.no-{name}"] = f"--no-{name}"
    return spellings


def to_argv(options: Options, *, secrets: bool = True) -> list[str]:
    """Return flags that rebuild `options`; values that equal the default are left out.

    With `secrets` false, options that must not show in a process list are left out too.
    """
    argv: list[str] = []
    for field in option_fields():
        value = getattr(getattr(options, field.section), field.name)
        if value != field.default and (secrets or not field.secret):
            argv += _arguments(field, value)
    return argv


def _arguments(field: OptionField, value: Any) -> Sequence[str]:
    if field.kind == "bool":
        return [field.flag if value else f"--no-{field.names[0]}"]
    if field.kind == "list":
        return [f"{field.flag}={','.join(value)}"]
    if field.kind == "mapping":
        return [f"{field.flag}={json.dumps(value)}"]
    return [f"{field.flag}={'' if value is None else value}"]
