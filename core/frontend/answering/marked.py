"""Telling special tokens from ordinary text that reads the same.

A parser sees text. Where tags are special tokens, a model (or a document it quotes) may also write a tag's characters
as ordinary tokens, which must not count. Such a spelling gets a mark behind its first character on its way into the
parser, so that no tag matches it, and loses the mark on its way out.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from core.api.parsers import OutputParser, ParseEvent, ParserContext, Reasoning, Text, ToolArguments, ToolStart
from core.api.tokenizer import Tokenizer, TokenStream

Factory = Callable[[ParserContext], OutputParser]

MARK = "\ufdd0"
"""A noncharacter: Unicode keeps it for use inside programs."""


class SpecialTexts:
    """The texts of a tokenizer's special tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        found = {token: tokenizer.token(token) for token in tokenizer.special_ids}
        self.by_id = {token: text for token, text in found.items() if text.strip()}
        texts = sorted(set(self.by_id.values()), key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, texts)) or r"(?!)")
        self._longest = max(map(len, texts), default=1)
        self._beginnings = frozenset(text[:end] for text in texts for end in range(1, len(text)))

    def settled(self, data: str) -> int:
        """Return where the text ends that later characters cannot make a special token's."""
        for at in range(max(0, len(data) - self._longest + 1), len(data)):
            if data[at:] in self._beginnings:
                return at
        return len(data)


class Marked:
    """A parser for which only special tokens read like special tokens.

    Those that it does not know are left out of what it shows, as they are where nothing is parsed.

    Args:
        stream: Detokenization of the same tokens, special ones included.
    """

    def __init__(self, parser: OutputParser, special: SpecialTexts, stream: TokenStream) -> None:
        self._parser, self._special, self._stream = parser, special, stream
        self._coming: deque[tuple[int, bool]] = (
            deque()
        )  # length of each piece of text, and whether it is a special token
        self._text = ""  # a special token of which the text has not arrived as a whole
        self._held = ""  # an end of ordinary text that may become a spelling

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> list[ParseEvent]:
        """Take in the next tokens and as much of their text as is known by now."""
        for token in token_ids:
            self._announce(token)
        return self._shown(self._parser.feed(self._told_apart(text)))

    def finish(self) -> list[ParseEvent]:
        """End the message."""
        rest = self._ordinary(self._text) + self._held
        self._text = self._held = ""
        return self._shown([*self._parser.feed(rest), *self._parser.finish()])

    def _announce(self, token: int) -> None:
        piece, special = self._stream.step(token), self._special.by_id.get(token)
        if special is not None and piece.endswith(special):
            piece = piece.removesuffix(special)  # half a character may stand in front
            self._coming += [(len(piece), False), (len(special), True)]
        else:
            self._coming.append((len(piece), False))

    def _told_apart(self, text: str) -> str:
        """Return the text for the parser; a special token waits until all of its text has arrived."""
        data, position, found = self._text + text, 0, []
        while position < len(data):
            length, special = self._coming.popleft() if self._coming else (len(data) - position, False)
            piece = data[position : position + length]
            if len(piece) < length:
                self._coming.appendleft((length if special else length - len(piece), special))
                if special:
                    break
            found.append(self._certain(piece) if special else self._ordinary(piece))
            position += len(piece)
        self._text = data[position:]
        return "".join(found)

    def _certain(self, text: str) -> str:
        held, self._held = self._held, ""
        return held + MARK + text if held else text

    def _ordinary(self, text: str) -> str:
        data = self._held + text.replace(MARK, "\ufffd")
        end = self._special.settled(data)
        self._held = data[end:]
        return self._special.pattern.sub(_marked, data[:end])

    def _shown(self, events: Sequence[ParseEvent]) -> list[ParseEvent]:
        shown = (self._clean(event) for event in events)
        return [event for event in shown if not isinstance(event, Text | Reasoning) or event.text]

    def _clean(self, event: ParseEvent) -> ParseEvent:
        if isinstance(event, Text | Reasoning):
            return replace(event, text=self._plain(event.text))
        if isinstance(event, ToolArguments):
            return replace(event, json=self._plain(event.json))
        return replace(event, name=self._plain(event.name)) if isinstance(event, ToolStart) else event

    def _plain(self, text: str) -> str:
        return self._special.pattern.sub("", text).replace(MARK, "")


class Marking:
    """Wraps parsers of requests whose tokenizer is known in `Marked`. One for a server: it has one tokenizer."""

    def __init__(self) -> None:
        self._special: SpecialTexts | None = None

    def around(self, make: Factory) -> Factory:
        """Return what makes the same parsers, for which only special tokens read like special tokens."""

        def made(ctx: ParserContext) -> OutputParser:
            parser = make(ctx)
            if ctx.tokenizer is None:
                return parser
            if self._special is None:
                self._special = SpecialTexts(ctx.tokenizer)
            return Marked(parser, self._special, ctx.tokenizer.stream(ctx.prompt_ids, skip_special_tokens=False))

        return made


def _marked(found: re.Match[str]) -> str:
    return found[0][0] + MARK + found[0][1:]
