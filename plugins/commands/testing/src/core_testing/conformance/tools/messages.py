"""Texts for output parsers, and what a parser makes of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

from core.api.parsers import OutputParser, ParseEvent, ParserContext, Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core_testing.conformance.outcome import require
from core_testing.conformance.samples import ParserSample
from core_testing.conformance.subject import Subject

PLAIN = (
    "Plain text.",
    " Leading and trailing space \n\n",
    "Comparisons like a < b and c > d, or x << 3.",
    "Some code:\n```python\nif x < 3: print({'a': [1, 2]})\n```\nDone.",
    "HTML <b>bold</b> and <br/> and <unknown>.",
    "Accents é, Greek λ, Chinese 你好, emoji 😀👩‍👩‍👧, a tab\t and \u200b nothing.",
    "Tools are called by functions; I call you tomorrow.",
    "a" * 300,
)
"""Messages without a call in any format."""

_HOSTILE = ("", "<", "<<<<", "{", "}", "[]", '"', "\\", "\\u12", "\x00", "\ufffd", "</", "<|", "|>", "```", "{{{{[[[[")


def parser_of(subject: Subject, sample: ParserSample | None = None) -> OutputParser:
    """Return a fresh parser, for a sample's request if one is given."""
    context = ParserContext()
    if sample is not None:
        context = ParserContext(
            sample.tools, in_reasoning=sample.in_reasoning, response_template=sample.response_template
        )
    parser: OutputParser = subject.impl()(context)
    return parser


def parse(parser: OutputParser, pieces: Sequence[str]) -> list[ParseEvent]:
    """Feed the pieces, finish, and join neighbours of one kind, as a client does."""
    events = [event for piece in pieces for event in parser.feed(piece)]
    return joined([*events, *parser.finish()])


def joined(events: Sequence[ParseEvent]) -> list[ParseEvent]:
    """Join neighbouring texts, and neighbouring argument pieces of one call."""
    result: list[ParseEvent] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, Text) and isinstance(last, Text):
            result[-1] = Text(last.text + event.text)
        elif isinstance(event, Reasoning) and isinstance(last, Reasoning):
            result[-1] = Reasoning(last.text + event.text)
        elif isinstance(event, ToolArguments) and isinstance(last, ToolArguments) and last.index == event.index:
            result[-1] = ToolArguments(event.index, last.json + event.json)
        else:
            result.append(event)
    return result


def hostile(subject: Subject, samples: Sequence[ParserSample]) -> Iterator[str]:
    """Yield broken messages: scraps, the samples' texts cut and put together wrongly, markers without sense."""
    rng = random.Random(4)
    texts = [sample.text for sample in samples]
    markers = [*getattr(subject.descriptor, "markers", ()), *texts]
    yield from _HOSTILE
    yield from (marker * 3 for marker in markers)
    pieces = [*_HOSTILE, *(text[: len(text) // 2] for text in texts), *(text[len(text) // 3 :] for text in texts)]
    for _ in range(20):
        yield "".join(rng.choices([*pieces, *markers, " so ", "\n"], k=6))


def splits(text: str, rng: random.Random) -> Iterator[list[str]]:
    """Yield ways to cut a text: character by character, every cut in two (a long text's sampled), random pieces."""
    yield list(text)
    places = range(1, len(text))
    yield from ([text[:at], text[at:]] for at in (places if len(text) <= 300 else rng.sample(places, 100)))
    for _ in range(15):
        cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randint(2, 9)))
        yield [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]


def calls_in(events: Sequence[ParseEvent]) -> list[ParseEvent]:
    """Return the events of calls."""
    return [event for event in events if isinstance(event, ToolStart | ToolArguments | ToolEnd)]


def texts_of(events: Sequence[ParseEvent]) -> list[str]:
    """Return the arguments that are texts, of calls that are well-formed."""
    arguments = [json.loads(event.json) for event in joined(events) if isinstance(event, ToolArguments)]
    return [value for one in arguments for value in one.values() if isinstance(value, str)]


def padded(sample: ParserSample) -> Iterator[tuple[str, list[str]]]:
    """Yield text arguments with white space around, each with the sample's message that has it: as it is, and as JSON.

    Only one of the two ways to write it need be the format's.
    """
    for value in texts_of(sample.events):
        plain = value.strip() == value and sample.text.count(value) == 1 and not sample.text.endswith(value)
        if plain and len(value) > 2:
            wide = f"\n {value} \n"
            yield wide, [sample.text.replace(value, wide), sample.text.replace(value, json.dumps(wide)[1:-1])]


def require_well_formed(events: Sequence[ParseEvent], text: str) -> None:
    """Require that calls are numbered from 0, opened and closed in order, and have valid JSON for arguments."""
    count, arguments, is_open = 0, "", False
    for event in events:
        match event:
            case ToolStart(index, name):
                require(not is_open and index == count, f"{event} comes where call {count} is due, in {_short(text)}")
                require(name, f"call {index} has no name, in {_short(text)}")
                is_open, arguments = True, ""
            case ToolArguments(index, piece):
                require(is_open and index == count, f"arguments of call {index} without its start, in {_short(text)}")
                arguments += piece
            case ToolEnd(index):
                require(is_open and index == count, f"call {index} ends without its start, in {_short(text)}")
                _require_object(arguments, text)
                is_open, count = False, count + 1
    require(not is_open, f"call {count} is never ended, in {_short(text)}")


def _require_object(arguments: str, text: str) -> None:
    try:
        value = json.loads(arguments)
    except ValueError:
        require(False, f"arguments {_short(arguments)} are not JSON, in {_short(text)}")
    require(isinstance(value, dict), f"arguments {_short(arguments)} are not a JSON object, in {_short(text)}")


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:50]} ... {text[-25:]}")
