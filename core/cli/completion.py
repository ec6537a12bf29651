"""`core completion bash | zsh | fish`: a completion script made from the commands' own parsers.

The script is static but for the names of plugins, for which it asks `core completion --names KIND`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.config.parser import CoreParser
from core.plugins.kinds import kind_chosen_by

SHELLS = ("bash", "zsh", "fish")
_ANY = "any"
_PLUGIN_ACTIONS = ("info", "doctor", "test", "enable", "disable", "uninstall")


@dataclass(frozen=True, slots=True)
class Command:
    """One command line: its words so far (`plugins list`), and what may follow.

    Attributes:
        flags: Flag -> one line of help.
        children: Sub-commands -> one line of help.
        plugins: Flag -> group whose plugins are its values.
    """

    path: str
    flags: dict[str, str] = field(default_factory=dict)
    children: dict[str, str] = field(default_factory=dict)
    plugins: dict[str, str] = field(default_factory=dict)


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "completion",
        help="Print a completion script for bash, zsh or fish.",
        description='bash: eval "$(core completion bash)" in ~/.bashrc; zsh the same in ~/.zshrc; '
        "fish: core completion fish > ~/.config/fish/completions/core.fish",
    )
    parser.add_argument("shell", nargs="?", choices=SHELLS, help="Shell to print for.")
    parser.add_argument("--names", metavar="KIND", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script, or the names of plugins."""
    if args.names:
        print("\n".join(plugin_names(args.names)))
        return 0
    if args.shell is None:
        from core.api.errors import ConfigError

        raise ConfigError("CORE-C104", "core completion: name a shell.", hint=f"One of {', '.join(SHELLS)}.")
    commands = list(walk())
    print("\n".join(fish(commands) if args.shell == "fish" else bash(commands, zsh=args.shell == "zsh")))
    return 0


def plugin_names(kind: str) -> list[str]:
    """Return the installed plugins of a group, or of any; from metadata alone."""
    from core.plugins.catalog import Catalogue

    catalogue = Catalogue.scan()
    return sorted({entry.name for entry in (catalogue.usable() if kind == _ANY else catalogue.entries(kind))})


def walk() -> Iterator[Command]:
    """Yield every command with its flags, `core` itself first."""
    yield from _walk(whole_parser(), "")


def whole_parser() -> CoreParser:
    """Return the parser of `core` with all of core's own commands in place, the flags of every one included."""
    from importlib import import_module

    from core.cli.main import COMMANDS

    parser = CoreParser(prog="core")
    subparsers = parser.add_subparsers(parser_class=CoreParser)
    for module, _ in COMMANDS.values():
        import_module(module).register(subparsers)
    _fill(parser)
    return parser


def _fill(parser: argparse.ArgumentParser) -> None:
    """Put flags in place that a parser would add when it is used."""
    if isinstance(parser, CoreParser):
        parser.fill()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _fill(child)


def _walk(parser: argparse.ArgumentParser, path: str) -> Iterator[Command]:
    command = Command(path, {"--debug": "Show the traceback of an error.", "--log-level": "Log level."})
    children: Mapping[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            children = action.choices
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            command.children.update({name: summaries.get(name, "") for name in children})
        for flag in action.option_strings:
            if flag.startswith("--") and action.help is not argparse.SUPPRESS:
                command.flags[flag] = action.help or ""
                section, _, name = action.dest.partition(".")
                if section == "select" and (kind := kind_chosen_by(name)):
                    command.plugins[flag] = kind.group
                elif action.dest in ("select.disable_plugin", "select.plugins"):
                    command.plugins[flag] = _ANY
    yield command
    for name, child in children.items():
        yield from _walk(child, f"{path} {name}".strip())


def bash(commands: list[Command], *, zsh: bool = False) -> Iterator[str]:
    """Yield the lines of a bash script; zsh runs the same through its own emulation."""
    if zsh:
        yield "autoload -U +X compinit && compinit"
        yield "autoload -U +X bashcompinit && bashcompinit"
    yield "_core_complete() {"
    yield '  local current="${COMP_WORDS[COMP_CWORD]}" before="" path="" word words=""'
    yield '  (( COMP_CWORD > 0 )) && before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield '    case "$path $word" in'
    known = "|".join(
        f'" {command.path}"' if " " not in command.path else f'"{command.path}"' for command in commands[1:]
    )
    yield f'      {known}) path="${{path:+$path }}$word";;'
    yield "    esac"
    yield "  done"
    yield '  case "$path:$before" in'
    for line in _plugin_cases(commands):
        yield f"    {line}"
    yield "  esac"
    yield '  if [ -z "$words" ]; then case "$path" in'
    for command in commands:
        yield f'    "{command.path}") words="{" ".join((*command.children, *command.flags))}";;'
    yield "  esac; fi"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o default -F _core_complete core"


def _plugin_cases(commands: list[Command]) -> Iterator[str]:
    """Yield the cases in which plugins' names complete a word."""
    flags = {flag: group for command in commands for flag, group in command.plugins.items()}
    for flag, group in flags.items():
        yield f'*:{flag}) words="$(core completion --names {group} 2>/dev/null)";;'
    actions = "|".join(f'"plugins {action}:{action}"' for action in _PLUGIN_ACTIONS)
    yield f'{actions}) words="$(core completion --names {_ANY} 2>/dev/null)";;'


def fish(commands: list[Command]) -> Iterator[str]:
    """Yield the lines of a fish script."""
    yield "complete -c core -e"
    for command in commands:
        here = _fish_condition(command)
        for name, text in command.children.items():
            yield f"complete -c core -f -n '{here}' -a {name} -d {_quote(text)}"
        for flag, text in command.flags.items():
            names = f" -x -a '(core completion --names {command.plugins[flag]})'" if flag in command.plugins else ""
            yield f"complete -c core -n '{here}' -l {flag[2:]}{names} -d {_quote(text)}"
        if command.path.removeprefix("plugins ") in _PLUGIN_ACTIONS:
            yield f"complete -c core -f -n '{here}' -a '(core completion --names {_ANY})'"


def _fish_condition(command: Command) -> str:
    words = command.path.split()
    if not words:
        return "__fish_use_subcommand"
    seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)
    children = " ".join(command.children)
    return f"{seen}; and not __fish_seen_subcommand_from {children}" if children else seen


def _quote(text: str) -> str:
    plain = text.replace("%%", "%").replace("\\", "\\\\").replace("'", "\\'")
    return f"'{plain}'"
