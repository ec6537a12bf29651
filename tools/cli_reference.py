"""Write docs/cli.md: every command and every flag of `core`, from the definitions that the commands themselves use.

Of plugins only those in this repository's `plugins/` are described, whatever else is installed, so that the page is the
same everywhere. With `--check` nothing is written: exit status 1 and a short difference mean that the page is stale.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from core.api.errors import PluginError
from core.cli.commands import COMMANDS, HAVE_CASES, add_common
from core.cli.help import spellings
from core.cli.plugin_commands import bundled, is_case, put, with_cases
from core.cli.tree import commands as commands_of
from core.cli.tree import whole_parser
from core.config.environment import SETTINGS
from core.config.fields import fields_by_path, option_fields, section_help
from core.config.flags import SCOPE
from core.config.option_field import OptionField
from core.config.parser import CoreParser
from core.plugins.catalog import Catalogue
from core.plugins.drivers import Candidate, load_descriptors
from core.plugins.entry import Entry
from core.plugins.kinds import COMMAND, HOOKS_GROUP, KINDS
from core.plugins.options import option_rows

_ROOT = Path(__file__).resolve().parent.parent
_SHOWN_LINES = 20

HEAD = """# Command line

Written by `tools/cli_reference.py` from the definitions that the commands themselves use; do not edit. Of plugins,
those in `plugins/` of this repository are described; `core serve --help=all` shows the flags of what is installed.
"""

OPTIONS = """Each of these flags is a variable of the environment and a key of the configuration file as well; the flag
outranks the variable, the variable the file. A key stands in a section (`[kv]` `block_size = 16`), dotted
(`kv.block_size`), or alone (`block_size`). Further spellings of a flag hold for its variable and its key too.
"""


def in_repository(root: Path) -> Catalogue:
    """Return the catalogue of the distributions in `root/plugins`, which need not be installed; extends `sys.path`."""
    entries = []
    for file in sorted(root.glob("plugins/*/*/pyproject.toml")):
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        sys.path.append(str(file.parent / "src"))
        for group, points in project.get("entry-points", {}).items():
            entries += [Entry(group, name, project["name"], "", value) for name, value in points.items()]
    return Catalogue([entry for entry in entries if entry.group in KINDS])


def render(catalogue: Catalogue) -> str:
    """Return the page."""
    parser = whole_parser(catalogue)
    commands = dict(commands_of(parser))
    lines = [*HEAD.splitlines(), "", "## Every command", ""]
    common = argparse.ArgumentParser(add_help=False)
    add_common(common)
    lines += [*_flag_table(common._actions), "", *_exit_status(), ""]
    summaries = {name: summary for name, (_, summary) in COMMANDS.items()}
    summaries |= {name: row.summary for name, row in bundled().items()}
    for name in dict.fromkeys(path.split()[0] for path in commands):
        summary = summaries[name]
        lines += [f"## core {name}", "", summary, ""]
        lines += [line for path, one in commands.items() if path.split()[0] == name for line in _command(path, one)]
    takers = [f"`core {path}`" for path, one in commands.items() if _takes_options(one)]
    lines += ["## Options", "", f"For {', '.join(takers)}.", "", *OPTIONS.splitlines(), "", *_options(catalogue)]
    lines += [*_plugin_options(catalogue), *_plugin_commands(catalogue), *_environment()]
    return "\n".join(lines).rstrip() + "\n"


def _takes_options(parser: argparse.ArgumentParser) -> bool:
    return {field.path for field in option_fields()} <= {action.dest for action in parser._actions}


def _exit_status() -> list[str]:
    return ["Exit status: 0; 1, it failed; 2, wrong usage or configuration; 130, Ctrl-C."]


def _command(path: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a command's part: what it does, how it is called, its arguments and flags."""
    if any(isinstance(action, argparse._SubParsersAction) for action in parser._actions):
        return
    if " " in path:
        yield f"### core {path}"
        yield ""
    if parser.description:
        yield _text(parser.description)
        yield ""
    own = [action for action in parser._actions if not _is_help(action)]
    everything = _takes_options(parser)
    yield f"`{_usage(path, own, everything=everything, rest=getattr(parser, 'rest', ''))}`"
    yield ""
    shown = [action for action in own if action.dest not in fields_by_path()]
    if shown:
        yield from _flag_table(shown)
        yield ""
    if everything:
        yield "And all [options](#options)."
        yield ""
    elif set(SCOPE) <= {action.dest for action in own}:
        flags = ", ".join(f"`{fields_by_path()[name].flag}`" for name in SCOPE)
        yield f"And {flags}, as in [options](#select)."
        yield ""


def _is_help(action: argparse.Action) -> bool:
    return "--help" in action.option_strings and action.nargs == 0


def _usage(path: str, actions: Sequence[argparse.Action], *, everything: bool, rest: str) -> str:
    words = ["core", path]
    for action in actions:
        if not action.option_strings:
            word = _value_name(action)
            words.append({"?": f"[{word}]", "*": f"[{word} ...]", "+": f"{word} [{word} ...]"}.get(action.nargs, word))
    if everything or any(action.option_strings for action in actions):
        words.append("[FLAG ...]")
    return " ".join([*words, *(["[-- ARGUMENT ...]"] if rest else [])])


def _flag_table(actions: Iterable[argparse.Action]) -> Iterator[str]:
    yield "| flag | default | meaning |"
    yield "|---|---|---|"
    for action in actions:
        if action.help == argparse.SUPPRESS:
            continue
        name = ", ".join(action.option_strings) or _value_name(action)
        value = f" {_value_name(action)}" if action.option_strings and action.nargs != 0 else ""
        choices = f" One of {', '.join(map(str, action.choices))}." if action.choices and action.metavar else ""
        yield f"| `{_text(name + value)}` | {_default(action.default)} | {_text(action.help or '')}{choices} |"


def _value_name(action: argparse.Action) -> str:
    if action.metavar:
        return str(action.metavar)
    if action.choices:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.rpartition(".")[2].upper()


def _default(value: object) -> str:
    return "" if value in (None, False, argparse.SUPPRESS) or value == [] else f"`{_text(str(value))}`"


def _options(catalogue: Catalogue) -> Iterator[str]:
    """Yield a table for every section of the options, and what each selection flag may name here."""
    for section, summary in section_help().items():
        yield from (f"### {section}", "", summary, "")
        yield from ("| flag | variable, key | default | allowed | meaning |", "|---|---|---|---|---|")
        yield from (_option_row(field) for field in option_fields() if field.section == section)
        yield ""
    yield from ("### Who can be chosen", "", "| flag | kind | plugins in this repository |", "|---|---|---|")
    for group, kind in KINDS.items():
        if kind.option:
            names = ", ".join(f"`{entry.name}` ({entry.dist})" for entry in catalogue.entries(group)) or "none"
            yield f"| `{kind.flag}` | {kind.label} | {names} |"
    yield ""


def _option_row(field: OptionField) -> str:
    flags = ", ".join(f"`{flag}`" for flag in spellings(field))
    allowed = field.allowed + (", or nothing" if field.optional and not field.chooses else "")
    default = f"`{str(field.default).lower()}`" if field.kind == "bool" else _default(field.default)
    return f"| {flags} | `{field.env}`, `{field.path}` | {default} | {_text(allowed)} | {_text(field.description)} |"


def _plugin_options(catalogue: Catalogue) -> Iterator[str]:
    """Yield a table of the options that plugins declare, with the plugin and the distribution that own each."""
    yield from ("### Options of plugins", "")
    yield "`--opt NAME.KEY=VALUE`, repeatable; in the file `runtime.plugin_options.NAME.KEY`, in the environment"
    yield "`CORE_PLUGIN_OPTIONS` as JSON. `NAME@DISTRIBUTION` instead of `NAME` where two distributions have it."
    yield from ("", "| option | default | meaning | owner |", "|---|---|---|---|")
    for candidate in _candidates(catalogue):
        entry = candidate.entry
        for name, default, description in option_rows(candidate):
            owner = f"{KINDS[entry.group].label} `{entry.name}` of {entry.dist}"
            yield f"| `--opt {entry.name}.{name}=` | `{_text(default)}` | {_text(description)} | {owner} |"
    yield ""


def _plugin_commands(catalogue: Catalogue) -> Iterator[str]:
    yield from ("## Commands of plugins", "")
    listed, cased = bundled(), with_cases(HAVE_CASES)
    others = [entry for entry in catalogue.entries(COMMAND.group) if entry.name not in listed]
    if not others:
        yield "No plugin in this repository brings a command; `core --help` lists those that are installed."
        yield ""
    for candidate in _candidates(Catalogue(others), [COMMAND.group]):
        parser = CoreParser(add_help=False)
        put(candidate, {}, parser)
        parser.description = f"{candidate.descriptor.summary} From {candidate.entry.dist}."
        name = candidate.entry.name
        words = name.replace("-", " ", 1) if is_case(name, cased) else name
        yield from (f"### core {words}", "") if words == name else ()  # that of a case comes with it
        yield from _command(words, parser)


def _environment() -> Iterator[str]:
    yield from ("## Other variables", "", "| variable | meaning |", "|---|---|")
    yield from (f"| `{name}` | {_text(text)} |" for name, text in SETTINGS.items())
    yield "| `CORE_PLUGIN_*` | Free for plugins; core does not look at them. |"


def _candidates(catalogue: Catalogue, groups: Sequence[str] = tuple(KINDS)) -> Iterator[Candidate]:
    """Yield every plugin of the repository. Raises `PluginError` for one that cannot be loaded."""
    for group in groups:
        if group == HOOKS_GROUP or not catalogue.entries(group):
            continue
        candidates, failures = load_descriptors(catalogue.entries(group), usable=False)
        for failure in failures:
            raise failure.error("the reference")
        yield from candidates


def _text(text: str) -> str:
    """Return text for a cell of a table."""
    return " ".join(text.replace("%%", "%").replace("|", "\\|").split())


def main(arguments: list[str] | None = None, root: Path = _ROOT) -> int:
    """Write or check the page and return the exit status."""
    parser = argparse.ArgumentParser(description="Write docs/cli.md from the definitions of the commands.")
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    check = parser.parse_args(arguments).check
    try:
        page = render(in_repository(root))
    except PluginError as error:
        print(error)
        return 1
    path = root / "docs" / "cli.md"
    if not check:
        path.write_text(page, encoding="utf-8")
        return 0
    there = path.read_text(encoding="utf-8") if path.exists() else ""
    if there == page:
        return 0
    print("docs/cli.md is stale: run `python tools/cli_reference.py`.")
    difference = difflib.unified_diff(there.splitlines(), page.splitlines(), "docs/cli.md", "now", lineterm="", n=0)
    print("\n".join(islice(difference, _SHOWN_LINES)))
    return 1


if __name__ == "__main__":
    # Nothing that is set for this shell may show in the page.
    for variable in [name for name in os.environ if name.startswith("CORE_")]:
        del os.environ[variable]
    sys.exit(main())
