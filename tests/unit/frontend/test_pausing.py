"""A front end that holds its requests back, and lets them go again."""

from __future__ import annotations

import asyncio

import pytest

from core import SamplingParams
from core.api.errors import EngineError, RequestError
from core.engine.messages import Add, Call
from core.frontend.request import GenerationRequest

LONG = SamplingParams(max_tokens=40)


def run(main):
    return asyncio.run(asyncio.wait_for(main(), 20))


async def texts(llm, name, **options):
    return [output async for output in llm.generate(name, LONG, delta=True, **options)]


def calls(engine):
    return [(message.method, *message.args) for message in engine.core.sent if isinstance(message, Call)]


def added(engine):
    return sum(isinstance(message, Add) for message in engine.core.sent)


def test_abort_ends_what_runs_and_holds_back_what_comes(online):
    async def main():
        llm, engine = online("x" * 500, max_model_len=1024)
        running = await llm.submit(GenerationRequest(prompt="a", params=LONG), delta=True)
        assert len(llm.request_ids) == 1
        await llm.pause_generation()
        assert llm.paused and llm.request_ids == []
        assert [output.outputs[0].finish_reason async for output in running] == ["abort"]
        assert calls(engine) == [("reset_prefix_cache",)]
        waiting = asyncio.create_task(texts(llm, "b"))
        await asyncio.sleep(0.05)
        assert not waiting.done() and added(engine) == 1
        await llm.resume_generation()
        assert not llm.paused
        assert (await waiting)[-1].finished and added(engine) == 2
        await llm.close()

    run(main)


def test_wait_lets_requests_finish(online):
    async def main():
        llm, engine = online("hello world")
        stream = await llm.submit(GenerationRequest(prompt="a", params=LONG), delta=True)
        await llm.pause_generation("wait", clear_cache=False)
        assert "".join([output.outputs[0].text async for output in stream]) == "hello world"
        assert calls(engine) == [] and llm.paused
        await llm.close()

    run(main)


def test_keep_stops_the_engine_itself(online):
    async def main():
        llm, engine = online()
        await llm.pause_generation("keep")
        await llm.pause_generation("keep")
        await llm.resume_generation()
        await llm.resume_generation()
        assert calls(engine) == [("pause", True), ("pause", False)]
        await llm.pause_generation("keep")
        await llm.pause_generation("wait")
        assert calls(engine)[2:] == [("pause", True), ("pause", False), ("reset_prefix_cache",)]
        await llm.close()

    run(main)


def test_a_reader_that_gives_up_while_it_waits_leaves_nothing_behind(online):
    async def main():
        llm, engine = online()
        await llm.pause_generation()
        waiting = asyncio.create_task(texts(llm, "a"))
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await llm.resume_generation()
        await asyncio.sleep(0.02)
        assert added(engine) == 0
        await llm.close()

    run(main)


def test_what_is_wrong_is_refused_while_paused_and_the_end_reaches_who_waits(online):
    async def main():
        llm, _ = online()
        with pytest.raises(RequestError, match="mode must be one of abort, wait, keep"):
            await llm.pause_generation("gently")
        assert not llm.paused
        await llm.pause_generation()
        with pytest.raises(RequestError):
            await llm.submit(GenerationRequest(prompt="x" * 500, params=LONG))
        waiting = asyncio.create_task(texts(llm, "a"))
        await asyncio.sleep(0.02)
        await llm.close()
        with pytest.raises(EngineError, match="closed"):
            await waiting

    run(main)


def test_a_request_can_be_seen_without_being_sent(online):
    async def main():
        llm, engine = online()
        prepared = await llm.prepare(GenerationRequest(prompt="hello", params=SamplingParams(max_tokens=None)))
        assert llm.tokenizer.decode(prepared.prompt.ids) == "hello"
        assert prepared.params.max_tokens == llm.max_model_len - len(prepared.prompt.ids)
        assert engine.core.sent == []
        await llm.close()

    run(main)


def test_what_waits_at_the_gate_can_be_aborted(online):
    async def main():
        llm, engine = online()
        await llm.pause_generation()
        named = asyncio.create_task(texts(llm, "a", request_id="mine"))
        nameless = asyncio.create_task(texts(llm, "b"))
        await asyncio.sleep(0.02)
        first, second = llm.request_ids
        assert first == "mine" and llm.running_ids == [] and llm.in_flight == 0
        await llm.abort("mine")
        (only,) = await named
        assert [sequence.finish_reason for sequence in only.outputs] == ["abort"] and only.finished
        assert llm.request_ids == [second]
        await llm.pause_generation()  # ends what runs, not what waits
        assert llm.request_ids == [second]
        await llm.resume_generation()
        assert (await nameless)[-1].finished
        assert added(engine) == 1 and llm.request_ids == []
        await llm.close()

    run(main)


@pytest.mark.parametrize("mode", ["wait", "keep"])
def test_the_end_of_the_server_ends_what_a_pause_holds_back(online, mode):
    async def main():
        llm, engine = online("x" * 500, max_model_len=1024)
        many = SamplingParams(max_tokens=900)
        kept = await llm.submit(GenerationRequest(prompt="a", params=many), delta=True) if mode == "keep" else None
        await llm.pause_generation(mode)
        engine.gate.clear()
        waiting = asyncio.create_task(texts(llm, "b"))
        await asyncio.sleep(0.02)
        await llm.dismiss_held()
        with pytest.raises(RequestError, match="shutting down") as caught:
            await waiting
        assert (caught.value.status, caught.value.code) == (503, "draining")
        with pytest.raises(RequestError, match="shutting down"):
            await texts(llm, "too late")
        if kept is not None:
            assert [output.outputs[0].finish_reason async for output in kept][-1] == "abort"
        assert llm.in_flight == 0
        await llm.close()

    run(main)
