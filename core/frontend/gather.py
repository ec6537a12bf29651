"""Outputs gathered until enough tokens are there, for readers who want few and larger ones."""

from __future__ import annotations

from dataclasses import replace

from core.frontend.output_stream import OutputFeed, Take
from core.frontend.results import CompletionOutput, RequestOutput


class GatheredFeed:
    """The deltas of a request, each of which brings `interval` new tokens of every sequence in it.

    A sequence's first token comes at once, and so does its end.
    """

    __slots__ = ("_begun", "_feed", "_interval", "_kept")

    def __init__(self, feed: OutputFeed, interval: int) -> None:
        self._feed, self._interval = feed, interval
        self._begun: set[int] = set()
        self._kept: dict[int, CompletionOutput] = {}

    def __aiter__(self) -> GatheredFeed:
        return self

    async def __anext__(self) -> RequestOutput:
        while True:
            ready = self._gathered(await anext(self._feed))
            if ready is not None:
                return ready

    async def feed(self, take: Take) -> bool:
        """Give each output to `take` until it returns False; see `OutputFeed`."""

        def gather(output: RequestOutput) -> bool:
            ready = self._gathered(output)
            return ready is None or take(ready)

        return await self._feed.feed(gather)

    async def aclose(self) -> None:
        """Stop reading; see `OutputFeed`."""
        await self._feed.aclose()

    def _gathered(self, output: RequestOutput) -> RequestOutput | None:
        """Return what is to be passed on now; None if it is kept for later."""
        ready = []
        for sequence in output.outputs:
            whole = _joined(self._kept.pop(sequence.index, None), sequence)
            few = len(whole.token_ids) < self._interval
            if few and sequence.index in self._begun and whole.finish_reason is None:
                self._kept[sequence.index] = whole
            else:
                self._begun.add(sequence.index)
                ready.append(whole)
        return replace(output, outputs=ready) if ready else None


def _joined(first: CompletionOutput | None, second: CompletionOutput) -> CompletionOutput:
    """Return two deltas of a sequence as one."""
    if first is None:
        return second
    scored = first.logprobs is not None or second.logprobs is not None
    return replace(
        second,
        text=first.text + second.text,
        token_ids=[*first.token_ids, *second.token_ids],
        logprobs=[*(first.logprobs or ()), *(second.logprobs or ())] if scored else None,
    )
