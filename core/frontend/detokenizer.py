"""The text of one sequence: detokenised, searched for stop texts, held back where one may have begun."""

from __future__ import annotations

from core.api.tokenizer import TokenStream
from core.frontend.stops import StopScanner


class SequenceText:
    """Grows by tokens; hands out what is new.

    Args:
        stream: Detokenization after the prompt.
        scanner: Search for stop texts, or None.
        min_tokens: A stop text that is complete within this many tokens does not count.
    """

    __slots__ = (
        "_count",
        "_min_tokens",
        "_new",
        "_scanner",
        "_stream",
    )

    def __init__(self, stream: TokenStream, scanner: StopScanner | None, min_tokens: int) -> None:
        self._stream, self._scanner, self._min_tokens = stream, scanner, min_tokens
        self._count = 0
        self._new: list[str] = []

    def push(self, token_id: int) -> str | None:
        """Take in a token; return the stop text that ends the sequence, if one does."""
        self._count += 1
        text = self._stream.step(token_id)
        if self._scanner is not None:
            return self._add(text)
        self._new.append(text)
        return None

    def finish(self) -> str | None:
        """The sequence has ended: release everything; return the stop text that the last characters complete."""
        found = self._add(self._stream.flush())
        if found is None and self._scanner is not None:
            self._new.append(self._scanner.release())
        return found

    def take(self) -> str:
        """Return the text that came since the last call."""
        text = "".join(self._new)
        self._new.clear()
        return text

    def _add(self, text: str) -> str | None:
        if self._scanner is None or not text:
            self._new.append(text)
            return None
        safe, found = self._scanner.scan(text, armed=self._count > self._min_tokens)
        self._new.append(safe)
        return found
