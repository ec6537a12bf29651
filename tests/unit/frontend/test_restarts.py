"""An engine dies and another one takes its place: what requests, calls and operators see of it."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from core_plugin_pool.engine import Pooling
from core_plugin_pool.inputs import PoolingPrompt

from core import SamplingParams
from core.api.errors import EngineError, RequestError
from core.engine.messages import Abort, Add, Call
from core.frontend.beams.search import BeamSearchParams
from core.frontend.restarts import MOST_DEATHS, WINDOW_SECONDS, RestartBudget, at_work
from core.frontend.tasks.requests import TaskRequests

TEXT = "the quick brown fox jumps over a lazy dog"
DEAD = EngineError("CORE-E110", "the engine process was ended by signal 9.")
UNABLE = EngineError("CORE-E112", "the engine was not ready after 1 s.")
WHOLE = SamplingParams(max_tokens=len(TEXT))


def run(main):
    return asyncio.run(asyncio.wait_for(main(), 30))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


async def collect(llm, params=WHOLE, **named):
    return [output async for output in llm.generate("a", params, **named)]


def kill_at(engine, count):
    """Have an engine die when it has sent `count` messages, and before that if it is asked for more."""
    receive, sent = engine.receive, []

    async def counted():
        if len(sent) == count:
            engine.die(DEAD)
        sent.append(1)
        return await receive()

    engine.receive = counted


@pytest.mark.covers("ENG-06")
@pytest.mark.parametrize("after", [0, 1, 2, 17, 36])
@pytest.mark.parametrize("delta", [True, False])
def test_a_stream_goes_on_as_if_nothing_had_been(reviving, after, delta):
    params = SamplingParams(max_tokens=len(TEXT), n=2, logprobs=1, prompt_logprobs=1, stop=["lazy do"], seed=3)

    def seen(outputs):
        parts = [[part for output in outputs for part in output.outputs if part.index == index] for index in range(2)]
        last = [part[-1] for part in parts]
        scores = [output.prompt_logprobs for output in outputs if output.prompt_logprobs is not None]
        if not delta:
            texts, tokens, logprobs = (
                [getattr(one, name) for one in last] for name in ("text", "token_ids", "logprobs")
            )
            scores = scores[-1:]
        else:
            texts = ["".join(one.text for one in part) for part in parts]
            tokens = [[token for one in part for token in one.token_ids] for part in parts]
            logprobs = [[score for one in part for score in one.logprobs] for part in parts]
        ends = [(one.finish_reason, one.stop_reason, one.cumulative_logprob) for one in last]
        return texts, tokens, logprobs, scores, ends, outputs[-1].num_cached_tokens, outputs[-1].finished

    async def main(deaths):
        llm, engines = await reviving(TEXT)
        kill_at(engines.last, after if deaths else -1)
        outputs = await collect(llm, params, delta=delta)
        assert (llm.restarts, len(engines.made), llm.healthy) == (deaths, 1 + deaths, True)
        assert engines.made[0].closed == deaths
        if deaths:
            second = [message for message in engines.last.core.sent if isinstance(message, Add)]
            assert [len(message.generated) // 4 for message in second] == [after, after]
            assert all(message.params.seed == 3 + index for index, message in enumerate(second))
            assert (second[0].params.prompt_logprobs is None) == (after > 0)
        await llm.close()
        return seen(outputs)

    undisturbed = run(lambda: main(0))
    assert undisturbed[0] == ["the quick brown fox jumps over a "] * 2
    assert run(lambda: main(1)) == undisturbed


def test_what_came_from_the_cache_is_what_the_first_engine_said(reviving):
    async def main():
        llm, engines = await reviving(TEXT)
        engines.last.core.cached = 3
        kill_at(engines.last, 5)
        outputs = await collect(llm, delta=True)
        assert {output.num_cached_tokens for output in outputs} == {3}
        await llm.close()

    run(main)


def test_requests_that_come_while_it_starts_are_served_by_the_next(reviving):
    async def main():
        llm, engines = await reviving(TEXT)
        started = asyncio.Event()
        engines.starts.append(started)
        llm.listen()
        engines.last.die(DEAD)
        await until(lambda: llm.retry_after is not None)
        assert not llm.healthy and llm.failure is None and llm.retry_after == 1
        waiting = asyncio.create_task(collect(llm))
        leaves = asyncio.create_task(collect(llm, request_id="gone"))
        await until(lambda: len(llm.running_ids) == 2)
        leaves.cancel()
        await until(lambda: len(llm.running_ids) == 1)
        with pytest.raises(EngineError, match="CORE-E181"):
            await llm.call("stats")
        started.set()
        (output,) = (await waiting)[-1].outputs
        assert output.text == TEXT and llm.healthy and llm.retry_after is None
        assert sum(isinstance(message, Add) for message in engines.last.core.sent) == 1
        assert not any(isinstance(message, Abort) for message in engines.last.core.sent)
        await llm.close()

    run(main)


def test_one_that_is_dead_when_a_request_is_sent(reviving):
    async def main():
        llm, engines = await reviving(TEXT)
        engines.last.die(DEAD)
        outputs = await collect(llm)
        assert outputs[-1].outputs[0].text == TEXT and llm.restarts == 1
        await llm.close()

    run(main)


def test_calls_in_flight_fail_and_later_ones_do_not(reviving):
    async def main():
        llm, engines = await reviving(TEXT)
        engines.last.gate.clear()
        call = asyncio.create_task(llm.call("stats"))
        await asyncio.sleep(0)
        engines.last.die(DEAD)
        with pytest.raises(EngineError, match="CORE-E181"):
            await call
        await until(lambda: llm.healthy)
        assert await llm.call("stats") == ["stats"] and llm._link._calls == {}
        await llm.close()

    run(main)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_starts_that_fail_are_tried_again_as_often_as_that_is_allowed(reviving, failing):
    async def main():
        llm, engines = await reviving(TEXT)
        engines.starts += [UNABLE, OSError("no memory"), UNABLE][:failing]
        kill_at(engines.last, 4)
        if failing < 3:
            assert (await collect(llm))[-1].outputs[0].text == TEXT
            assert llm.restarts == failing + 1
        else:
            with pytest.raises(EngineError, match="CORE-E112"):
                await collect(llm)
            assert llm.failure.code == "CORE-E112" and not llm.healthy and llm.retry_after is None
            with pytest.raises(EngineError, match="CORE-E112"):
                await collect(llm)
        await llm.close()

    run(main)


def test_none_are_started_where_none_may_be(reviving):
    async def main():
        llm, engines = await reviving(TEXT, restarts=0)
        kill_at(engines.last, 4)
        with pytest.raises(EngineError, match="CORE-E110"):
            await collect(llm)
        assert (llm.restarts, llm.failure.code, len(engines.made)) == (0, "CORE-E110", 1)
        await llm.close()

    run(main)


def test_a_request_that_was_there_at_three_deaths_is_ended_by_name(reviving, caplog):
    async def main():
        llm, engines = await reviving(TEXT, restarts=10)
        engines.held = True
        engines.last.gate.clear()
        suspect = asyncio.create_task(collect(llm, request_id="suspect"))
        await until(lambda: llm.running_ids)
        for death in range(1, MOST_DEATHS + 1):
            if death == MOST_DEATHS:
                late = asyncio.create_task(collect(llm, request_id="late"))
                await until(lambda: len(llm.running_ids) == 2)
            engines.last.die(DEAD)
            await until(lambda: len(engines.made) == death + 1 and llm.healthy)  # noqa: B023
        (ended,) = (await suspect)[-1].outputs
        assert ended.finish_reason == "error" and ended.error.startswith("CORE-E180 ")
        assert "request suspect is ended: CORE-E180" in caplog.text
        engines.last.gate.set()
        assert (await late)[-1].outputs[0].text == TEXT
        await llm.close()

    run(main)


def test_beams_go_on(reviving):
    async def main(after):
        llm, engines = await reviving(TEXT)
        kill_at(engines.last, after)
        output = await llm.beam_search("a", BeamSearchParams(beam_width=2, max_tokens=6, ignore_eos=True))
        assert llm.restarts == (after >= 0)
        await llm.close()
        return [(one.token_ids, one.cumulative_logprob) for one in output.outputs]

    assert run(lambda: main(3)) == run(lambda: main(-1))


def test_a_paused_engine_is_paused_before_it_is_told_of_its_requests(reviving):
    async def main():
        llm, engines = await reviving(TEXT)
        engines.last.gate.clear()
        running = asyncio.create_task(collect(llm))
        await until(lambda: llm.running_ids)
        engines.last.gate.set()
        await llm.pause_generation("keep")
        engines.last.die(DEAD)
        await until(lambda: len(engines.made) == 2 and llm.healthy)
        assert llm.paused
        first, second = engines.last.core.sent
        assert (first.method, first.args) == ("pause", [True]) and isinstance(second, Add)
        await llm.resume_generation()
        assert [message.args for message in engines.last.core.sent if isinstance(message, Call)] == [[True], [False]]
        assert (await running)[-1].outputs[0].text == TEXT
        await llm.close()

    run(main)


def test_a_pause_that_the_engine_did_not_live_to_see_holds_nothing_back(reviving):
    async def main():
        llm, engines = await reviving(TEXT)
        engines.last.gate.clear()
        pausing = asyncio.create_task(llm.pause_generation("keep"))
        await asyncio.sleep(0)
        engines.last.die(DEAD)
        with pytest.raises(EngineError, match="CORE-E181"):
            await pausing
        assert not llm.paused
        await llm.close()

    run(main)


def test_updated_weights_are_said_to_be_lost(reviving, caplog):
    async def main():
        llm, engines = await reviving(TEXT)
        version = str(await llm.call("update_weights", {}))
        assert llm.lost_weights is None
        engines.last.die(DEAD)
        await until(lambda: len(engines.made) == 2 and llm.healthy)
        assert llm.lost_weights == version and "are lost with the engine" in caplog.text
        await llm.call("update_weights", {})
        assert llm.lost_weights is None
        await llm.close()

    run(main)


def test_the_end_of_a_front_end_ends_the_start_of_its_engine(reviving):
    async def main():
        llm, engines = await reviving(TEXT)
        engines.starts.append(asyncio.Event())
        kill_at(engines.last, 4)
        running = asyncio.create_task(collect(llm))
        await until(lambda: llm.retry_after is not None)
        await llm.close()
        with pytest.raises(EngineError, match="CORE-E150"):
            await running
        assert len(engines.made) == 1
        assert "core-receive" not in {task.get_name() for task in asyncio.all_tasks()}

    run(main)


def test_the_budget_is_for_ten_minutes():
    now = [0.0]
    budget = RestartBudget(2, clock=lambda: now[0])
    assert [budget.take() for _ in range(3)] == [True, True, False]
    now[0] = WINDOW_SECONDS - 1
    assert not budget.take()
    now[0] = WINDOW_SECONDS
    assert [budget.take() for _ in range(3)] == [True, True, False] and budget.used == 4
    assert not RestartBudget(0).take()


@pytest.mark.parametrize(
    ("started", "rows", "found"),
    [([], 2, [1, 2]), ([3], 2, [3, 1]), ([3, 4], 2, [3, 4]), ([], 9, [1, 2, 3, 4]), ([1, 2, 3], 2, [1, 2, 3])],
)
def test_who_may_have_been_at_work(started, rows, found):
    assert at_work([1, 2, 3, 4], started, rows) == found


def test_pooling_requests_run_again_and_those_that_may_be_the_cause_fail():
    requests = TaskRequests("pool", None)
    prompts = [PoolingPrompt([1, 2, 3], Pooling("last")), PoolingPrompt([4], Pooling("last"))]
    batch, messages = requests.add(prompts)
    requests.engine_died(1)
    assert [message.handle for message in requests.resumed()] == [message.handle for message in messages]
    done, _ = requests.add(prompts[:1])
    assert len(requests.resumed()) == 3
    assert requests.drop(done) == list(done.handles) and len(requests.resumed()) == 2
    requests.engine_died(1)
    assert not batch.done
    requests.engine_died(1)
    with pytest.raises(RequestError, match="CORE-E180"):
        batch.answers()
    assert requests.resumed() == [] and len(requests) == 0
    assert np.frombuffer(messages[0].prompt, "<i4").tolist() == [1, 2, 3]
