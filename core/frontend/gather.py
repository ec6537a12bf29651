"""Outputs gathered until enough tokens are there, for readers who want few and larger ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from core.frontend.results import CompletionOutput, RequestOutput


async def gathered(outputs: AsyncIterator[RequestOutput], interval: int) -> AsyncGenerator[RequestOutput, None]:
    """Yield deltas of a request in which every sequence brings `interval` new tokens; closing it closes `outputs`.

    A sequence's first token comes at once, and so does its end.
    """
    begun: set[int] = set()
    kept: dict[int, CompletionOutput] = {}
    async with aclosing(cast("AsyncGenerator[RequestOutput, None]", outputs)) as items:
        async for output in items:
            ready = []
            for sequence in output.outputs:
                whole = _joined(kept.pop(sequence.index, None), sequence)
                if sequence.index in begun and len(whole.token_ids) < interval and whole.finish_reason is None:
                    kept[sequence.index] = whole
                else:
                    begun.add(sequence.index)
                    ready.append(whole)
            if ready:
                yield replace(output, outputs=ready)


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
