"""Outputs gathered into fewer and larger ones lose nothing."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.frontend.gather import GatheredFeed
from core.frontend.output_stream import IteratedFeed
from core.frontend.prompts import prompt_ids
from core.frontend.results import CompletionOutput, Logprob, RequestOutput


class Source:
    def __init__(self, outputs, fail=False):
        self.outputs, self.fail, self.closed = outputs, fail, False

    async def stream(self):
        try:
            for output in self.outputs:
                yield output
            if self.fail:
                raise RuntimeError("gone")
        finally:
            self.closed = True


def output(*parts):
    return RequestOutput("r", None, prompt_ids((1,)), [CompletionOutput(**part) for part in parts])


def part(index, tokens, *, end=None, scored=False):
    logprobs = [{token: Logprob(-1.0)} for token in tokens] if scored else None
    text = "".join(f"{token};" for token in tokens)
    return {"index": index, "text": text, "token_ids": tokens, "logprobs": logprobs, "finish_reason": end}


def collect(source, interval):
    """Return what a reader gets who is given the outputs; one who asks for them gets the same."""

    async def given():
        taken = []
        assert await feed().feed(lambda output: taken.append(output) or True) is False
        return taken

    async def asked():
        return [one async for one in feed()]

    def feed():
        return GatheredFeed(IteratedFeed(source.stream()), interval)

    found = asyncio.run(given())
    assert found == asyncio.run(asked())
    return found


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=3),
    interval=st.integers(2, 6),
    scored=st.booleans(),
)
def test_nothing_is_lost_or_reordered(sizes, interval, scored):
    steps = []
    for step in range(max(map(len, sizes))):
        row = []
        for index, counts in enumerate(sizes):
            if step < len(counts):
                tokens = [100 * step + number for number in range(counts[step])]
                row.append(part(index, tokens, end="stop" if step + 1 == len(counts) else None, scored=scored))
        steps.append(output(*row))
    found = collect(Source(steps), interval)
    for index in range(len(sizes)):
        before = [one for step in steps for one in step.outputs if one.index == index]
        after = [one for step in found for one in step.outputs if one.index == index]
        assert [token for one in after for token in one.token_ids] == [t for one in before for t in one.token_ids]
        assert "".join(one.text for one in after) == "".join(one.text for one in before)
        assert sum(len(one.logprobs or ()) for one in after) == sum(len(one.logprobs or ()) for one in before)
        assert [one.finish_reason for one in after][-1] == "stop"
        assert all(len(one.token_ids) >= interval for one in after[1:-1])


def test_the_first_token_does_not_wait():
    found = collect(Source([output(part(0, [number])) for number in range(7)]), 3)
    assert [one.outputs[0].token_ids for one in found] == [[0], [1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("stop", ["close", "fail"])
def test_the_source_is_closed(stop):
    source = Source([output(part(0, [number])) for number in range(5)], fail=stop == "fail")

    async def run():
        stream = GatheredFeed(IteratedFeed(source.stream()), 2)
        if stop == "close":
            await anext(stream)
            await stream.aclose()
            return
        with pytest.raises(RuntimeError, match="gone"):
            [one async for one in stream]

    asyncio.run(run())
    assert source.closed
