"""`core plugins parse`: what a parser makes of a model's text. For authors of parsers, and of bug reports."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from core.api.errors import ConfigError
from core.cli.plugins.scope import scope_flags, visible

if TYPE_CHECKING:
    from core.api.parsers import OutputParser, ParseEvent, ParserContext
    from core.frontend.answering.parsing import AnswerParser
    from core.plugins.drivers import Candidate
    from core.selection.parsers import FormatFacts

_MOST_PIECE = 12
"""Characters of the longest piece of a split text, about what a few tokens bring."""


def add(actions: Any) -> None:
    """Add the action."""
    parser = actions.add_parser("parse", help="Parse a model's text from standard input; print events and message.")
    parser.add_argument("name", metavar="NAME", nargs="?", help="Tool parser: name or name@distribution.")
    parser.add_argument("--reasoning", metavar="NAME", help="Reasoning parser in front of it, or alone.")
    parser.add_argument("--tools", type=Path, metavar="FILE", help="The request's tools: a JSON list, as in the API.")
    parser.add_argument("--split", type=int, metavar="SEED", help="Feed the text in pieces cut at random.")
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="The checkpoint, for parsers that go by what its tokenizer says."
    )
    parser.add_argument("--in-reasoning", action="store_true", help="The prompt opened the thinking.")
    parser.fill_later(scope_flags)
    parser.set_defaults(run=run_parse)


def run_parse(args: argparse.Namespace) -> int:
    """Parse standard input and print the events and the message as JSON."""
    from core.api.parsers import ParserContext
    from core.selection.parsers import FormatFacts

    facts = FormatFacts.of(args.model) if args.model else FormatFacts()
    ctx = ParserContext(_tools(args.tools), in_reasoning=args.in_reasoning, response_template=facts.response_template)
    parser = _parser(args, ctx, facts)
    text = sys.stdin.read()
    events = [event for piece in _pieces(text, args.split) for event in parser.feed(piece)]
    events += parser.finish()
    shown = [{"event": type(event).__name__, **asdict(event)} for event in events]
    print(json.dumps({"events": shown, "message": message_of(events)}, indent=2, ensure_ascii=False))
    return 0


def message_of(events: Sequence[ParseEvent]) -> dict[str, Any]:
    """Return the assistant message that the events amount to, as the API would show it, without ids."""
    from core.api.parsers import Reasoning, Text, ToolArguments, ToolStart

    text = "".join(event.text for event in events if isinstance(event, Text))
    reasoning = "".join(event.text for event in events if isinstance(event, Reasoning))
    calls: dict[int, dict[str, Any]] = {}
    for event in events:
        if isinstance(event, ToolStart):
            calls[event.index] = {"name": event.name, "arguments": ""}
        elif isinstance(event, ToolArguments):
            calls[event.index]["arguments"] += event.json
    message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
    if reasoning:
        message["reasoning"] = reasoning
    if calls:
        message["tool_calls"] = [{"type": "function", "function": calls[index]} for index in sorted(calls)]
    return message


def _parser(args: argparse.Namespace, ctx: ParserContext, facts: FormatFacts) -> OutputParser:
    """Choose as `serve` does, and load what was chosen."""
    from core.api.descriptors import ToolParserSpec
    from core.config.load import load_options
    from core.frontend.answering.parsing import answer_parser
    from core.plugins.hooks import Hooks
    from core.plugins.kinds import HOOKS_GROUP
    from core.plugins.options import given_options
    from core.selection.parsers import choose_parsers
    from core.selection.select import Selector

    if not (args.name or args.reasoning):
        raise ConfigError(
            "CORE-C116",
            "there is nothing to parse with: neither a tool parser nor a reasoning parser was named.",
            hint="Say which one: core plugins parse hermes < output.txt",
        )
    catalogue, given = visible(args), load_options(args).options.runtime.plugin_options
    selector = Selector(catalogue, Hooks(catalogue.entries(HOOKS_GROUP)))
    found = choose_parsers(selector, args.name, args.reasoning, facts)
    chosen = [(one.spec(ToolParserSpec), _maker(one, given_options(one.entry, given))) for one in found]
    made = cast("AnswerParser", answer_parser(chosen, args.name))
    return made.make(ctx)


def _maker(candidate: Candidate, given: Mapping[str, Any]) -> Any:
    """Return what makes a plugin's parsers."""
    from core.frontend.answering.parsing import ConfiguredParser
    from core.plugins.drivers import load_impl
    from core.plugins.options import checked_options

    make, options = load_impl(candidate.descriptor.impl, candidate.entry), checked_options(candidate, given)
    return ConfiguredParser(make, options) if options else make


def _tools(path: Path | None) -> list[dict[str, Any]]:
    if path is None:
        return []
    try:
        tools = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise _no_tools(path, str(error)) from None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _no_tools(path, "it is no list of objects")
    return tools


def _no_tools(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        "CORE-C117", f"{path} holds no tools: {reason}.", hint='Write what a request has under "tools": a JSON list.'
    )


def _pieces(text: str, seed: int | None) -> Iterator[str]:
    if seed is None:
        yield text
        return
    rng, start = random.Random(seed), 0
    while start < len(text):
        end = start + rng.randint(1, _MOST_PIECE)
        yield text[start:end]
        start = end
