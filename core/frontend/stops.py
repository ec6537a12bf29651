"""Stop texts: found as soon as their last character is there, however the text is cut into pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class StopTexts:
    """All stop texts of a request as one automaton (Aho and Corasick): one step per character for all of them.

    A state is the longest end of the text so far that begins some stop text; its depth is that end's length. So the
    depth is exactly what must be held back, and the first state that completes a stop text is the first match.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._match: list[str | None] = [None]
        for stop in stops:
            self._insert(stop)
        self._fail = [0] * len(self._next)
        self._link()

    def advance(self, state: int, char: str) -> int:
        """Return the state after one more character."""
        while state and char not in self._next[state]:
            state = self._fail[state]
        return self._next[state].get(char, 0)

    def match(self, state: int) -> str | None:
        """Return the longest stop text that ends here."""
        return self._match[state]

    def settle(self, state: int) -> int:
        """Return the state of the longest end that can still grow into a stop text."""
        while state and not self._next[state]:
            state = self._fail[state]
        return state

    def depth(self, state: int) -> int:
        """Return how many characters the state stands for."""
        return self._depth[state]

    def _insert(self, stop: str) -> None:
        state = 0
        for char in stop:
            if char not in self._next[state]:
                self._next[state][char] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._match.append(None)
            state = self._next[state][char]
        self._match[state] = stop

    def _link(self) -> None:
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for char, child in self._next[state].items():
                self._fail[child] = self.advance(self._fail[state], char)
                queue.append(child)
            if self._match[state] is None:
                self._match[state] = self._match[self._fail[state]]


class StopScanner:
    """The search in one sequence.

    Args:
        include: Leave the stop text in the output; then nothing needs to be held back.
    """

    def __init__(self, stops: StopTexts, *, include: bool) -> None:
        self._stops, self._include = stops, include
        self._state = 0
        self._held = ""

    def scan(self, text: str, *, armed: bool = True) -> tuple[str, str | None]:
        """Search new text.

        Args:
            armed: Whether a match counts; a match that ends while it does not is passed over.

        Returns:
            The text that is safe to show, and the stop text that was found (what follows it is dropped).
        """
        stops, state = self._stops, self._state
        for i, char in enumerate(text):
            state = stops.advance(state, char)
            found = stops.match(state)
            if found is not None and armed:
                seen = self._held + text[: i + 1]
                self._held, self._state = "", 0
                return (seen if self._include else seen[: len(seen) - len(found)]), found
        self._state = state = stops.settle(state)
        if self._include:
            return text, None
        seen = self._held + text
        safe = len(seen) - stops.depth(state)
        self._held = seen[safe:]
        return seen[:safe], None

    def release(self) -> str:
        """Return what was held back; the sequence has ended."""
        held, self._held = self._held, ""
        return held
