"""Choosing what reads the answers: a tool parser, a reasoning parser, both, or one that does both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core.api.descriptors import ToolParserSpec
from core.api.errors import ConfigError, CoreError
from core.api.verdict import Verdict
from core.plugins.drivers import Candidate
from core.plugins.kinds import TOOL_PARSER
from core.selection.report import SelectionReport
from core.selection.select import Selector

_AUTO = "auto"


@dataclass(frozen=True, slots=True)
class FormatFacts:
    """Facts of a checkpoint about the format of its messages.

    Attributes:
        response_template: As its tokenizer has it; None if that has none.
        chat_template: Jinja source, in which markers of formats may stand.
    """

    response_template: Mapping[str, Any] | None = None
    chat_template: str = ""

    @staticmethod
    def of(path: str | Path) -> FormatFacts:
        """Read the files of a checkpoint in Hugging Face's layout; what is not there, or not readable, says nothing."""
        folder = Path(path)
        config = _config(folder / "tokenizer_config.json")
        try:
            template: Any = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            template = config.get("chat_template")
        if isinstance(template, list):  # several named ones: the one for tools shows how calls are written
            template = "".join(str(one.get("template", "")) for one in template if isinstance(one, dict))
        described = config.get("response_template")
        return FormatFacts(
            described if described and isinstance(described, dict) else None,
            template if isinstance(template, str) else "",
        )


def choose_parsers(
    selector: Selector, tool_parser: str | None, reasoning_parser: str | None, facts: FormatFacts
) -> list[Candidate]:
    """Return the tool parser, if one is asked for, and then the reasoning parser, unless it is the same.

    Raises:
        CoreError: What was asked for cannot be had, or `auto` finds nothing that the checkpoint says.
    """
    chosen: list[Candidate] = []
    for what, name in (("tools", tool_parser), ("reasoning", reasoning_parser)):
        if name:
            check = partial(_check, what, facts, name == _AUTO)
            none = partial(_unsaid, selector, facts, what)
            candidate = selector.choose(TOOL_PARSER, name, check=check, subject=what, none=none)
            chosen += [] if candidate in chosen else [candidate]
    return chosen


def likely_parsers(selector: Selector, what: str, facts: FormatFacts) -> list[str]:
    """Return the parsers of `tools` or `reasoning` whose marks stand in the chat template, by name."""
    usable = selector.assess(TOOL_PARSER, partial(_check, what, facts, False)).ranking()
    specs = [one.spec(ToolParserSpec) for one in usable]
    return sorted(
        spec.name for spec in specs if spec.markers and all(mark in facts.chat_template for mark in spec.markers)
    )


def _check(what: str, facts: FormatFacts, auto: bool, candidate: Candidate) -> Verdict:
    spec = candidate.spec(ToolParserSpec)
    found = spec.reads
    return Verdict.of(
        None if what in found else f"reads {' and '.join(sorted(found)) or 'nothing'}, not {what}",
        "the checkpoint has no response_template" if spec.response_template and not facts.response_template else None,
        "used only when named" if auto and not spec.response_template else None,
    )


def _unsaid(selector: Selector, facts: FormatFacts, what: str, report: SelectionReport) -> CoreError:
    """Say which parsers the chat template speaks for; many formats share their tags, so that none is taken for sure."""
    likely = likely_parsers(selector, what, facts)
    flag = "--tool-parser" if what == "tools" else "--reasoning-parser"
    known = f"Its chat template has the marks of: {', '.join(likely)}." if likely else "docs/parsers.md has them."
    return ConfigError(
        "CORE-C118",
        f"{flag} auto: the checkpoint does not say how its messages are written (response_template).",
        hint=f"Name the format. {known}",
    )


def _config(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
