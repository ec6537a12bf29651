"""Commands: help for everything at no cost, flags of their own, and the exit status that they promise."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from core.api.commands import Command
from core.cli.commands import COMMANDS, HAVE_CASES, parser_for
from core.cli.plugin_commands import bind, bundled, cases_of, fill, installed, with_cases
from core.cli.tree import commands
from core.config.parser import CoreParser
from core.plugins.kinds import COMMAND
from core.plugins.known import Table
from core_testing.conformance.outcome import Failed, Level, NotApplicable, Unavailable, checks, require
from core_testing.conformance.samples import CommandSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.interpreters import ask, child_environment
from core_testing.tinymodels import tiny_model

_COMMON = frozenset({"--debug", "--log-level", "--log-format"})
_RESERVED = frozenset({"run", "version", "debug", "log_level", "log_format"})
_SECONDS = 60.0
_MODEL_SECONDS = 180.0
"""With a model an engine starts, in a process of its own."""

_USAGE = 2
_NO_FLAG = "--no-such-flag-of-the-kit"


def its_name_is_free(subject: Subject) -> None:
    """No command of core has its name: core's own come first, so that it would never run."""
    name = subject.entry.name
    bundle = [row.dist for row in Table.read().named(COMMAND.group, name) if name in bundled()]
    theirs = bundle and subject.entry.dist not in bundle
    require(name not in COMMANDS and not theirs, f"`core {name}` is a command of core's")
    command, _, case = name.partition("-")
    require(case not in _cases(command), f"`core {command} {case}` is core's")
    plain = name.replace("-", "").replace("_", "").isalnum() and not name.startswith("-")
    require(plain, f"{name!r} cannot be typed as a command")


def _cases(command: str) -> Collection[str]:
    """Return the cases that a command of core or of its bundle has by itself; none if it has no cases."""
    if command in HAVE_CASES:
        parser = parser_for(command, with_plugins=False)
        return [words.partition(" ")[2] for words, _ in commands(parser) if words.startswith(f"{command} ")]
    if command in with_cases(()) and (entry := installed().get(command)):
        parser = CoreParser()
        fill(entry, parser)
        return [*cases_of(parser).choices]
    return ()


def help_explains_every_argument(subject: Subject) -> None:
    """`--help` can be made, and has a text for every argument, those of sub-commands included."""
    parser = _parser(subject)
    try:
        parser.format_help()
    except Exception as error:
        raise Failed(f"its help cannot be made: {type(error).__name__}: {error}") from error
    bare = [name for one in _parsers(parser) for name in _without_help(one)]
    require(not bare, f"its help says nothing of {', '.join(bare)}")


def help_needs_no_torch(subject: Subject) -> None:
    """Its help is made in a fresh process where torch cannot be imported."""
    facts = ask("command_help", {"impl": subject.descriptor.impl, "name": subject.entry.name})
    asked = f" (it asked for {', '.join(facts['imports'])})" if facts["imports"] else ""
    require("error" not in facts, f"without torch{asked}: {facts.get('error')}")
    require(not facts["imports"], f"its help asks for {', '.join(facts['imports'])}")


def common_flags_are_cores(subject: Subject) -> None:
    """It takes no flag that every command has, and stores nothing under a name that core reads."""
    for parser in _parsers(_parser(subject)):
        for action in parser._actions:
            taken = sorted(_COMMON & set(action.option_strings))
            require(not taken, f"{', '.join(taken)} is core's, and works with every command")
            require(
                action.dest not in _RESERVED, f"an argument is stored as '{action.dest}', which core reads: give dest"
            )


def wrong_usage_has_status_2(subject: Subject) -> None:
    """An unknown flag ends it with status 2 and a line that says so, before it has done anything."""
    folder = subject.folder()
    done = _run(subject, [_NO_FLAG, *_needed(subject, folder)], folder)
    require(done.returncode == _USAGE, f"an unknown flag gives status {done.returncode}, not {_USAGE}")
    require("Traceback" not in done.stderr, "an unknown flag gives a traceback")
    require(_NO_FLAG in done.stderr, f"of an unknown flag it says {done.stderr.strip()[-100:]!r}")


def samples_run(subject: Subject) -> None:
    """Calls of its samples end with the status and the output that they say."""
    samples = subject.samples(CommandSample)
    if not samples:
        raise NotApplicable("it ships no CommandSample")
    for sample in samples:
        folder = subject.folder()
        if sample.model:
            tiny_model(folder / "model")
        arguments = [*sample.arguments(folder)]
        done = _run(subject, arguments, folder, _MODEL_SECONDS if sample.model else _SECONDS)
        where = f"'{sample.name}': core {subject.entry.name} {' '.join(arguments)}"
        last = done.stderr.strip().rpartition("\n")[2]
        require(done.returncode == sample.status, f"{where} has status {done.returncode}, not {sample.status}: {last}")
        require(sample.says in done.stdout, f"{where} does not say {sample.says!r}, but {done.stdout[:200]!r}")
        require("Traceback" not in done.stderr, f"{where} gives a traceback: {last}")


def _needed(subject: Subject, folder: Path) -> list[str]:
    """Return arguments without which it does not run: none, or those of its first sample.

    Raises:
        Unavailable: It cannot do without, and has no sample.
    """
    needed = [action.dest for action in _parser(subject)._actions if action.required]
    samples = subject.samples(CommandSample)
    if needed and not samples:
        raise Unavailable(subject.wants(CommandSample, f"it cannot do without {', '.join(needed)}"))
    return [*samples[0].arguments(folder)] if needed else []


def _run(
    subject: Subject, arguments: Sequence[str], folder: Path, seconds: float = _SECONDS
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "core.cli", subject.entry.name, *arguments]
    environment = child_environment({})
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"`core {subject.entry.name} {' '.join(arguments)}` was still busy after {seconds:g} s") from error


def _parser(subject: Subject) -> argparse.ArgumentParser:
    """Return the command's own arguments, registered with a parser of core's."""
    parser = CoreParser(prog=f"core {subject.entry.name}", description=subject.descriptor.summary)
    command: Command = subject.impl()()
    bind(subject.entry, command)
    command.register(parser)
    return parser


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _parsers(child)


def _without_help(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            explained = {choice.dest for choice in action._choices_actions if choice.help}
            yield from (name for name in action.choices if name not in explained)
        elif not (action.help or "").strip():
            yield action.option_strings[0] if action.option_strings else action.dest


CHECKS = (
    *checks(its_name_is_free, level=Level.L0),
    *checks(
        help_explains_every_argument, help_needs_no_torch, common_flags_are_cores, wrong_usage_has_status_2, samples_run
    ),
)
