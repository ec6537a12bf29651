"""Outputs given in the turn in which they come: what wakes nobody, and what does."""

from __future__ import annotations

import asyncio

import pytest

from core import SamplingParams
from core.api.errors import EngineError
from core.engine.messages import Abort
from core.frontend.output_stream import OutputStream
from core.frontend.request import GenerationRequest

LONG = SamplingParams(max_tokens=12, ignore_eos=True)


def run(main):
    return asyncio.run(asyncio.wait_for(main(), 20))


@pytest.fixture
def waits(monkeypatch):
    """How often a reader waited, by request."""
    found: dict[str, int] = {}
    original = OutputStream._news

    async def news(self):
        found[self.request_id] = found.get(self.request_id, 0) + 1
        await original(self)

    monkeypatch.setattr(OutputStream, "_news", news)
    return found


def test_a_reader_is_woken_once_however_many_outputs_come(online, waits):
    async def main():
        llm, _ = online("hello world and more", eos=False)
        taken = {}

        async def read(name):
            outputs = taken[name] = []

            def take(output):
                outputs.append(output)
                return True

            stream = await llm.submit(GenerationRequest(prompt=name, params=LONG, request_id=name), delta=True)
            assert await stream.feed(take) is False

        names = ["a", "b", "c"]
        await asyncio.gather(*map(read, names))
        await llm.close()
        return taken

    taken = run(main)
    assert waits == dict.fromkeys(taken, 1)
    for outputs in taken.values():
        assert [len(output.outputs[0].token_ids) for output in outputs] == [1] * 12
        assert [output.finished for output in outputs] == [False] * 11 + [True]


def test_what_comes_while_nobody_takes_is_merged(online):
    async def main():
        llm, engine = online("hello world and more", eos=False)
        stream = await llm.submit(GenerationRequest(prompt="a", params=LONG), delta=True)
        taken = []

        def once(output):
            taken.append(output)
            return False

        assert await stream.feed(once) is True
        while engine.core.running:
            await asyncio.sleep(0)
        assert len(taken) == 1
        assert await stream.feed(once) is False
        await llm.close()
        return taken

    first, rest = run(main)
    assert len(first.outputs[0].token_ids) == 1 and len(rest.outputs[0].token_ids) == 11
    assert rest.finished and rest.outputs[0].finish_reason == "length"


def test_what_a_taker_raises_ends_its_own_feed_alone(online):
    async def main():
        llm, _ = online("hello world and more", eos=False)
        broken, whole = [await llm.submit(GenerationRequest(prompt=name, params=LONG), delta=True) for name in "ab"]
        count = 0

        def take(_):
            nonlocal count
            count += 1
            return True

        def breaks(_):
            raise ValueError("full")

        async def fails():
            with pytest.raises(ValueError, match="full"):
                await broken.feed(breaks)
            await broken.aclose()

        await asyncio.gather(fails(), whole.feed(take))
        assert count == 12 and llm.in_flight == 0
        await llm.close()

    run(main)


def test_the_end_of_the_engine_ends_a_feed(online):
    async def main():
        llm, engine = online("hello", eos=False)
        engine.gate.clear()
        stream = await llm.submit(GenerationRequest(prompt="a", params=LONG), delta=True)
        feed = asyncio.ensure_future(stream.feed(lambda _: True))
        await asyncio.sleep(0)
        engine.die(EngineError("CORE-E110", "gone"))
        with pytest.raises(EngineError, match="gone"):
            await feed
        await llm.close()

    run(main)


def test_a_feed_that_is_cancelled_takes_no_more_and_close_aborts(online):
    async def main():
        llm, engine = online("hello", eos=False)
        engine.gate.clear()
        stream = await llm.submit(GenerationRequest(prompt="a", params=LONG), delta=True)
        taken = []
        feed = asyncio.ensure_future(stream.feed(lambda output: not taken.append(output)))
        await asyncio.sleep(0)
        feed.cancel()
        stream.notify()  # in the turn of the cancellation, before the task has run
        with pytest.raises(asyncio.CancelledError):
            await feed
        assert taken == []
        sent = []
        engine.send = sent.append
        await stream.aclose()
        assert [type(message) for message in sent] == [Abort] and llm.in_flight == 0
        await llm.close()

    run(main)


class Panic(BaseException):
    """As what a parser in another language raises when it breaks off."""


@pytest.mark.parametrize("error", [StopIteration("none left"), asyncio.CancelledError(), Panic("gone")])
def test_nothing_that_a_taker_raises_reaches_the_other_streams(online, error):
    async def main():
        llm, _ = online("hello world and more", eos=False)
        broken, whole = [await llm.submit(GenerationRequest(prompt=name, params=LONG), delta=True) for name in "ab"]
        count = 0

        def take(_):
            nonlocal count
            count += 1
            return True

        def breaks(output):
            if output.outputs[0].text != "h":  # the first one is there before anybody waits
                raise error
            return True

        async def fails():
            with pytest.raises(RuntimeError, match=type(error).__name__):
                await broken.feed(breaks)
            await broken.aclose()

        await asyncio.gather(fails(), whole.feed(take))
        assert count == 12 and llm.in_flight == 0 and llm.healthy
        await llm.close()

    run(main)


def test_a_panic_in_the_engine_s_turn_is_told_to_every_reader(online):
    async def main():
        llm, engine = online("hello", eos=False)
        engine.gate.clear()
        stream = await llm.submit(GenerationRequest(prompt="a", params=LONG), delta=True)
        feed = asyncio.ensure_future(stream.feed(lambda _: True))
        await asyncio.sleep(0)

        def breaks(_):
            raise Panic("gone")

        llm._outputs.process = breaks
        engine.gate.set()
        with pytest.raises(EngineError, match="Panic: gone"):
            await feed
        assert not llm.healthy
        await llm.close()

    run(main)
