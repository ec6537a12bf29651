"""The parser of a message in the format that the checkpoint describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from core_plugin_parsers import JsonCalls, Reader
from core_plugin_parsers.reader import CallSink

from core.api import ParserContext, Text
from core.api.parsers import ParseEvent
from core_plugin_parsers_hf.anchors import Anchor, Hit
from core_plugin_parsers_hf.calls import read_calls
from core_plugin_parsers_hf.prose import ProseOut
from core_plugin_parsers_hf.template import Field, Holds, Template, load_template

_TAIL_TOKENS = 64
_MOST_STILL = 4
"""Delimiters without text that may follow each other at one place."""

Hits = dict[Anchor, Hit | None]


class Turn(NamedTuple):
    """A delimiter that takes effect: it opens `field`, or closes it."""

    field: Field
    opens: bool
    hit: Hit


class TemplateParser:
    """`OutputParser` for the request's `response_template`; without one, all is text.

    Raises:
        CheckpointError: CORE-M145, the template cannot be used.
    """

    def __init__(self, ctx: ParserContext) -> None:
        self._ctx = ctx
        self._template: Template | None = None
        if ctx.response_template is not None and ctx.reads:
            self._template = load_template(ctx.response_template).only(ctx.reads)
        self._broken: set[Anchor] = set()  # patterns that took too long
        self._restart()
        if self._template is not None:
            self._read_prompt(self._template, ctx)

    @property
    def in_reasoning(self) -> bool:
        """Whether what comes next is thinking."""
        return self._field is not None and self._field.holds is Holds.REASONING

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> list[ParseEvent]:
        """Take in the next piece of the text and return what is certain by now."""
        if self._template is None:
            return [Text(text)] if text else []
        self._rest += text
        self._run(self._template, final=False)
        return self._take()

    def finish(self) -> list[ParseEvent]:
        """End the message."""
        if self._template is not None:
            self._run(self._template, final=True)
            self._end("")
        return self._take()

    def _restart(self) -> None:
        self._sink, self._prose = CallSink(self._ctx), ProseOut()
        self._events: list[ParseEvent] = []
        self._rest = ""  # an end of the text that may become a delimiter
        self._field: Field | None = None
        self._captures: Mapping[str, str] = {}
        self._raw: list[str] = []  # the text of a field of calls, its delimiter and the space in front included
        self._calls_before = 0
        self._reader: Reader | None = None
        self._still = 0

    def _read_prompt(self, template: Template, ctx: ParserContext) -> None:
        """Begin where the prompt's end has brought the message."""
        self._rest = _beginning(template, ctx)
        self._run(template, final=False)
        if self._sink.count or self._sink.is_open:  # a prompt that calls: what follows counts for itself
            self._restart()
        self._take()
        thoughts = [field for field in template.fields if field.holds is Holds.REASONING]
        if ctx.in_reasoning and self._field is None and thoughts:
            self._begin(thoughts[0], {}, [])

    def _take(self) -> list[ParseEvent]:
        self._collect()
        events, self._events = self._events, []
        return events

    def _collect(self) -> None:
        """Bring what was said and what was called in the order of the text: only one of them is going on."""
        self._events += self._prose.take()
        self._events += self._sink.take()

    def _run(self, template: Template, *, final: bool) -> None:
        data, position = self._rest, 0
        hits: Hits = {}
        while True:
            if self._reader is not None:
                position = self._read(self._reader, data, position, final=final)
                if self._reader is not None:
                    break
            turn, end = self._next(template, data, position, hits, final=final)
            if turn is None:
                self._add(template, data[position:end])
                position = end
                break
            position = self._turn(template, turn, data, position)
        self._rest = data[position:]

    def _next(
        self, template: Template, data: str, position: int, hits: Hits, *, final: bool
    ) -> tuple[Turn | None, int]:
        """Return the first delimiter; without one, where the text ends that belongs to none."""
        turns, held = [], len(data)
        for field, opens in self._watched(template):
            anchor = field.opens if opens else field.closes
            hit = None if anchor is None else self._find(anchor, data, position, hits, final=final)
            if hit is not None and hit.certain:
                turns.append(Turn(field, opens, hit))
            elif hit is not None:
                held = min(held, hit.start)
        first = min(turns, key=_precedence, default=None)
        return (None, held) if first is None or first.hit.start >= held else (first, held)

    def _watched(self, template: Template) -> Iterator[tuple[Field, bool]]:
        """Yield the fields that may open, or close, here."""
        if self._field is not None:
            yield self._field, False
            return
        yield from ((field, True) for field in template.fields)
        if template.outside is not None:
            yield template.outside, False

    def _find(self, anchor: Anchor, data: str, position: int, hits: Hits, *, final: bool) -> Hit | None:
        """Search once for each match: what was found farther on is kept."""
        known = hits.get(anchor)
        if (anchor in hits and (known is None or known.start >= position)) or anchor in self._broken:
            return known
        try:
            hits[anchor] = anchor.find(data, position, final=final)
        except TimeoutError:
            self._broken.add(anchor)
        return hits.get(anchor) if anchor not in self._broken else None

    def _turn(self, template: Template, turn: Turn, data: str, position: int) -> int:
        """Pass the text in front of a delimiter on, and the delimiter itself; return where to go on."""
        hit = turn.hit
        self._still = self._still + 1 if hit.end == position else 0
        if self._still > _MOST_STILL:
            self._add(template, data[position : position + 1])
            return position + 1
        self._add(template, data[position : hit.start])
        text = data[hit.start : hit.end]
        space = self._end("" if turn.opens else text)
        if turn.opens:
            self._begin(turn.field, hit.groups, [space, text])
        return hit.end

    def _begin(self, field: Field, captures: Mapping[str, str], raw: list[str]) -> None:
        self._field, self._captures, self._raw = field, captures, raw
        self._calls_before = self._sink.count
        if field.holds is Holds.CALLS and field.keys is not None:
            self._reader = JsonCalls(several=True, separators=",;", keys=field.keys).reader(self._sink)

    def _add(self, template: Template, text: str) -> None:
        field = self._field or template.outside
        if field is None or not text:
            return
        if field.holds is Holds.CALLS:
            self._raw.append(text)
        elif field.holds is not Holds.NOTHING:
            self._prose.say(field, text)

    def _read(self, reader: Reader, data: str, position: int, *, final: bool) -> int:
        """Read JSON on; where it stops, the reader is gone."""
        while position < len(data) and not reader.ended and not reader.failed:
            end = reader.feed(data, position)
            self._raw.append(data[position:end])
            if end == position:
                break
            position = end
        if final:
            reader.finish()
        self._collect()
        if final or reader.ended or reader.failed:
            self._reader = None
            if self._sink.count == self._calls_before:
                self._refuse("")
        return position

    def _end(self, closing: str) -> str:
        """End the field that is open; what was no call is text. Return the space at its end, which is left out."""
        field = self._field
        space = self._prose.edge()
        if field is not None and field.holds is Holds.CALLS and self._sink.count == self._calls_before:
            try:
                calls = read_calls("".join(self._raw[2:]), field, self._captures, self._sink.tools)
            except ValueError:
                self._refuse(closing)
            else:
                for name, arguments in calls:
                    self._sink.whole(name, arguments)
            self._collect()
        self._field = None
        return space

    def _refuse(self, closing: str) -> None:
        self._prose.go_on("".join(self._raw) + closing)
        self._field = None


def _precedence(turn: Turn) -> tuple[int, int, bool, str]:
    """Order of delimiters: the first, the longest, one that opens, by name."""
    return turn.hit.start, turn.hit.start - turn.hit.end, not turn.opens, turn.field.name


def _beginning(template: Template, ctx: ParserContext) -> str:
    """Return what the prompt holds of the message already: what stands behind its last beginning of one."""
    if ctx.tokenizer is None:
        return ""
    count = _TAIL_TOKENS
    while True:
        text = ctx.tokenizer.decode(ctx.prompt_ids[-count:], skip_special_tokens=False)
        at = template.begins.last(text)
        if at is not None:
            return text[at:]
        if count >= len(ctx.prompt_ids):
            return ""
        count *= 4
