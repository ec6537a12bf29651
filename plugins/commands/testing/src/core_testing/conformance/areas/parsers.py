"""Tool parsers: the same events however the text is cut, valid JSON always, linear work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps

from core.api.descriptors import ToolParserSpec
from core.api.parsers import Reasoning, Text
from core_testing.conformance.outcome import checks, require
from core_testing.conformance.samples import ParserSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools import messages
from core_testing.conformance.tools.messages import parse, parser_of

LONG = 128 * 1024
"""Characters of an adversarial text."""

_SHORTER = 8
"""The short text's part of the long one."""

_SPLITS = 25
"""Ways to cut a broken message; a sample's are all tried."""

_RATIO = 16.0
_TRIES = 4
_QUICK = 0.03
"""Seconds below which the clock says nothing about growth."""

_PIECE = 24
"""Characters fed at once in the linear-time check, as tokens come."""


def _once_for_every_name(check: Callable[[Subject], None]) -> Callable[[Subject], None]:
    """Run a check once for all names of one parser: with equal samples and markers it cannot differ between them."""

    @wraps(check)
    def run(subject: Subject) -> None:
        spec = subject.spec(ToolParserSpec)
        samples = [repr(replace(one, plugin="")) for one in subject.samples(ParserSample)]
        key = (check.__name__, subject.entry.dist, spec.impl, spec.markers, *samples)
        error = subject.shared.once(key, lambda: _error_of(check, subject))
        if error is not None:
            raise error

    return run


def _error_of(check: Callable[[Subject], None], subject: Subject) -> Exception | None:
    try:
        check(subject)
    except Exception as error:
        return error
    return None


def samples_give_their_events(subject: Subject) -> None:
    """Every text of the plugin's corpus gives the events that it says."""
    for sample in subject.need_samples(ParserSample):
        found, expected = parse(parser_of(subject, sample), [sample.text]), messages.joined(sample.events)
        require(found == expected, f"'{sample.name}' gives {found}, expected {expected}")


@_once_for_every_name
def any_split_gives_the_same_events(subject: Subject) -> None:
    """However a text is cut into pieces, the joined events are those of the whole."""
    rng = random.Random(3)
    for sample in subject.samples(ParserSample):
        _require_equal(subject, sample.text, messages.splits(sample.text, rng), sample)
    for text in (*messages.hostile(subject, subject.samples(ParserSample)), *messages.PLAIN):
        _require_equal(subject, text, list(messages.splits(text, rng))[:_SPLITS])


def calls_are_well_formed(subject: Subject) -> None:
    """Whatever the text: calls are numbered, named, ended in order, and their arguments are JSON objects."""
    samples = subject.samples(ParserSample)
    for sample in samples:
        messages.require_well_formed(parse(parser_of(subject, sample), [sample.text]), sample.text)
    for text in messages.hostile(subject, samples):
        messages.require_well_formed(parse(parser_of(subject), [text]), text)


@_once_for_every_name
def unfinished_calls_are_closed(subject: Subject) -> None:
    """A message that breaks off anywhere still gives ended calls with valid JSON."""
    for sample in subject.samples(ParserSample):
        for end in range(len(sample.text)):
            text = sample.text[:end]
            messages.require_well_formed(parse(parser_of(subject, sample), [text]), text)


def plain_text_passes_unchanged(subject: Subject) -> None:
    """A message without a call comes out as it went in; of reasoning, white space around it may be missing."""
    for text in messages.PLAIN:
        events = parse(parser_of(subject), [text])
        content = "".join(event.text for event in events if isinstance(event, Text | Reasoning))
        thought = len(events) == 1 and isinstance(events[0], Reasoning)
        same = content.strip() == text.strip() if thought else content == text
        require(len(events) == 1 and same, f"{text[:60]!r} comes out as {events}")


def calls_end_unfinished_thinking(subject: Subject) -> None:
    """A call that is read behind a text is also read behind thinking that was never closed, which it ends."""
    for sample in subject.samples(ParserSample):
        open_thinking = replace(sample, in_reasoning=True)
        by_itself = sample.response_template is not None  # the checkpoint says what ends its thinking
        if by_itself or parse(parser_of(subject, open_thinking), ["Hm."]) != [Reasoning("Hm.")]:
            continue
        text = f"Hm.\n{sample.text}"
        wanted = messages.calls_in(parse(parser_of(subject, replace(sample, in_reasoning=False)), [text]))
        found = parse(parser_of(subject, open_thinking), [text])
        same = not wanted or (isinstance(found[0], Reasoning) and messages.calls_in(found) == wanted)
        require(same, f"'{sample.name}' in open thinking gives {found}, behind a text the calls {wanted}")


def values_keep_their_white_space(subject: Subject) -> None:
    """A text that begins and ends with line breaks and blanks arrives as it was written."""
    for sample in subject.samples(ParserSample):
        for value, texts in messages.padded(sample):
            found = [parse(parser_of(subject, sample), [text]) for text in texts]
            kept = any(value in messages.texts_of(events) for events in found)
            require(kept, f"'{sample.name}' with the value {value!r} gives {found[0]}")


def parsers_share_nothing(subject: Subject) -> None:
    """Two messages parsed at the same time do not mix."""
    for sample in subject.samples(ParserSample):
        expected = parse(parser_of(subject, sample), [sample.text])
        first, second = parser_of(subject, sample), parser_of(subject, sample)
        pairs = [(first.feed(letter), second.feed(letter)) for letter in sample.text]
        events = [event for pair in pairs for event in pair[0]]
        require(messages.joined([*events, *first.finish()]) == expected, f"'{sample.name}' beside itself differs")


@_once_for_every_name
def work_is_linear(subject: Subject) -> None:
    """Eight times the text takes less than sixteen times as long, for 128 kB texts made to be hard."""
    for name, pattern in _adversaries(subject):
        ratio = _growth(subject, pattern)
        for _ in range(_TRIES - 1):
            if ratio < _RATIO:
                break
            ratio = min(ratio, _growth(subject, pattern))
        require(ratio < _RATIO, f"{_SHORTER} times as much of {name} takes {ratio:.0f} times as long")


def _require_equal(
    subject: Subject, text: str, splits: Iterator[list[str]] | list[list[str]], sample: ParserSample | None = None
) -> None:
    whole = parse(parser_of(subject, sample), [text])
    for pieces in splits:
        found = parse(parser_of(subject, sample), pieces)
        shown = pieces if len(pieces) < 12 else "single characters"
        require(found == whole, f"{text[:80]!r} cut as {shown} gives {found}, whole {whole}")


def _adversaries(subject: Subject) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield `(what it is, (head, what is repeated))`."""
    yield "the letter <", ("", "<")
    yield "white space", ("", " \n")
    for marker in subject.spec(ToolParserSpec).markers:
        yield f"the marker {marker}", ("", marker)
    for sample in subject.samples(ParserSample)[:1]:
        yield f"'{sample.name}'", ("", sample.text)
        half = sample.text[: len(sample.text) * 2 // 3]
        yield f"text in '{sample.name}'", (half, "x, ")
        yield f"brackets in '{sample.name}'", (half, '{"a": [')
        yield f"backslashes in '{sample.name}'", (half, "\\")


def _growth(subject: Subject, pattern: tuple[str, str]) -> float:
    """Return how much longer the long text takes than the short one; 1 when it is too quick to tell."""
    long = _time(subject, *pattern, LONG)
    return long / max(_time(subject, *pattern, LONG // _SHORTER), 1e-9) if long > _QUICK else 1.0


def _time(subject: Subject, head: str, repeated: str, size: int) -> float:
    text = (head + repeated * (size // len(repeated) + 1))[:size]
    pieces = [text[at : at + _PIECE] for at in range(0, size, _PIECE)]
    parser = parser_of(subject)
    begin = time.thread_time()
    for piece in pieces:
        parser.feed(piece)
    parser.finish()
    return time.thread_time() - begin


CHECKS = checks(
    samples_give_their_events,
    any_split_gives_the_same_events,
    calls_are_well_formed,
    unfinished_calls_are_closed,
    plain_text_passes_unchanged,
    calls_end_unfinished_thinking,
    values_keep_their_white_space,
    parsers_share_nothing,
    work_is_linear,
)
