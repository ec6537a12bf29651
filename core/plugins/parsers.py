"""Choosing what reads the answers: a tool parser, a reasoning parser, both, or one that does both."""

from __future__ import annotations

from functools import partial
from typing import cast

from core.api.descriptors import ToolParserSpec
from core.api.verdict import Verdict
from core.plugins.drivers import Candidate
from core.plugins.kinds import TOOL_PARSER
from core.plugins.select import Selector


def choose_parsers(selector: Selector, tool_parser: str | None, reasoning_parser: str | None) -> list[Candidate]:
    """Return the tool parser, if one is asked for, and then the reasoning parser, unless it is the same.

    Raises:
        PluginError: What was asked for cannot be had.
    """
    chosen: list[Candidate] = []
    for what, name in (("tools", tool_parser), ("reasoning", reasoning_parser)):
        if name:
            candidate = selector.choose(TOOL_PARSER, name, check=partial(_reads, what), subject=what)
            chosen += [] if candidate in chosen else [candidate]
    return chosen


def _reads(what: str, candidate: Candidate) -> Verdict:
    found = cast(ToolParserSpec, candidate.descriptor).reads
    return Verdict.of(None if what in found else f"reads {' and '.join(sorted(found)) or 'nothing'}, not {what}")
