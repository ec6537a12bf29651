"""Calls that must be, in the form that a template describes or, where no grammar can say it, as a JSON list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core_plugin_parsers import Family, JsonCalls, Written
from core_plugin_parsers.written import GENERAL, function_of, loosened, tag_text

from core.api import CallGrammar, ParserContext, Text, ThinkingTags
from core.api.parsers import ParseEvent
from core_plugin_parsers_hf.parser import TemplateParser
from core_plugin_parsers_hf.template import Field, Holds, load_template

Tools = Sequence[Mapping[str, Any]]

_KIND = "structural_tag"
_LISTED = Family(bare=JsonCalls(), bare_heads="[")


class ListedCalls:
    """`OutputParser` of thinking as the template has it, and calls as a JSON list."""

    def __init__(self, ctx: ParserContext) -> None:
        self._thoughts = TemplateParser(replace(ctx, reads=ctx.reads & {"reasoning"}))
        self._calls = _LISTED(replace(ctx, reads=ctx.reads & {"tools"}, in_reasoning=False))

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> list[ParseEvent]:
        """Take in the next piece of the text and return what is certain by now."""
        return self._pass(self._thoughts.feed(text))

    def finish(self) -> list[ParseEvent]:
        """End the message."""
        return [*self._pass(self._thoughts.finish()), *self._calls.finish()]

    def _pass(self, events: Sequence[ParseEvent]) -> list[ParseEvent]:
        found: list[ParseEvent] = []
        for event in events:
            found += self._calls.feed(event.text) if isinstance(event, Text) else [event]
        return found


class DescribedParser(TemplateParser):
    """`TemplateParser` with the optional parts of a parser's factory: see `KnowsThinking` and `EnforcesCalls`."""

    @staticmethod
    def thinking(ctx: ParserContext) -> ThinkingTags | None:
        """Return where this request's thinking begins and ends; None if there is none between literals."""
        opens, closes = _literals(_field(ctx, Holds.REASONING))
        return ThinkingTags(closes, opens, TemplateParser(ctx).in_reasoning) if opens and closes else None

    @staticmethod
    def forced(ctx: ParserContext, tools: Tools, *, many: bool) -> CallGrammar:
        """Return the grammar of an answer that calls one of `tools`, or several times."""
        written, thinking = _written(ctx), DescribedParser.thinking(ctx)
        if written is None:
            return CallGrammar(_KIND, tag_text(GENERAL.calls(tools, many=many)), ListedCalls, thinking)
        return CallGrammar(_KIND, tag_text(written.calls(tools, many=many)), DescribedParser, thinking)

    @staticmethod
    def strict(ctx: ParserContext, tools: Tools, *, many: bool) -> CallGrammar | None:
        """Return the grammar of an answer in which calls, if there are any, follow the schemas of strict tools."""
        written, (opens, _) = _written(ctx), _literals(_field(ctx, Holds.CALLS))
        if written is None:
            return None
        tags = written.tags([tool if function_of(tool).get("strict") else loosened(tool) for tool in tools], many=many)
        form = {"type": "triggered_tags", "triggers": [opens], "tags": tags}
        return CallGrammar(_KIND, tag_text(form), DescribedParser, DescribedParser.thinking(ctx))


def _written(ctx: ParserContext) -> Written | None:
    """Return how calls are written, if they are plain JSON objects between literals."""
    field = _field(ctx, Holds.CALLS)
    opens, closes = _literals(field)
    keys = None if field is None or field.each else field.keys
    if keys is None or not opens or not closes:
        return None
    begin = f'{opens}\n{{"{keys.name[0]}": "{{name}}", "{keys.arguments[0]}": '
    return Written(begin, f"}}\n{closes}", between="\n")


def _field(ctx: ParserContext, holds: Holds) -> Field | None:
    if ctx.response_template is None:
        return None
    fields = load_template(ctx.response_template).fields
    return next((field for field in fields if field.holds is holds), None)


def _literals(field: Field | None) -> tuple[str, str]:
    """Return the first literal on both sides of a field; empty where there is none."""
    anchors = (None, None) if field is None else (field.opens, field.closes)
    opens, closes = (anchor.literals[0] if anchor is not None and anchor.literals else "" for anchor in anchors)
    return opens, closes
