"""Many tasks on one scripted engine."""

from __future__ import annotations

import asyncio

import pytest

from core import SamplingParams
from core.api.errors import CheckpointError, EngineError, RequestError
from core.engine.messages import Abort, Add, Failed
from core.frontend.async_llm import AsyncLLM
from core.frontend.conversation import Conversation
from core.frontend.request import GenerationRequest

LONG = SamplingParams(max_tokens=40)
ENDLESS = SamplingParams(max_tokens=None)


def run(main):
    return asyncio.run(asyncio.wait_for(main(), 20))


async def collect(llm, *args, **kwargs):
    return [output async for output in llm.generate(*args, **kwargs)]


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


@pytest.mark.covers("ENG-06")
def test_deltas_join_to_the_cumulative_output(online):
    async def main():
        llm, _ = online("hello wörld 🙂")
        deltas = await collect(llm, "a", LONG, delta=True)
        whole = await collect(llm, "a", LONG)
        assert "".join(output.outputs[0].text for output in deltas) == whole[-1].outputs[0].text == "hello wörld 🙂"
        tokens = [token for output in deltas for token in output.outputs[0].token_ids]
        assert tokens == whole[-1].outputs[0].token_ids
        assert [output.finished for output in deltas] == [False] * (len(deltas) - 1) + [True]
        assert len(deltas) > 5 and deltas[0].num_cached_tokens == 16
        assert llm.stats.running == 1
        await llm.close()

    run(main)


def test_requests_run_together_and_stay_apart(online):
    async def main():
        texts = {name: f"answer {name} " * (i + 1) for i, name in enumerate("abcd")}
        llm, engine = online(by_prompt=texts, max_model_len=128)
        results = await asyncio.gather(*(collect(llm, name, ENDLESS, delta=True) for name in texts))
        assert ["".join(o.outputs[0].text for o in result) for result in results] == list(texts.values())
        assert engine.core.most_running == 4
        await llm.close()

    run(main)


def test_an_engine_that_gets_no_front_end_is_closed(online, resolved):
    async def main():
        llm, engine = online()
        with pytest.raises(CheckpointError, match="CORE-M112"):
            await AsyncLLM.connect(resolved(model={"chat_template": "{% nonsense %}"}), engine)
        assert engine.closed == 1
        await llm.close()

    run(main)


@pytest.mark.parametrize("delta", [True, False])
def test_a_slow_reader_gets_merged_outputs(online, delta):
    async def main():
        llm, engine = online("0123456789", eos=False)
        texts, tokens, count = [], [], 0
        async for output in llm.generate("a", SamplingParams(max_tokens=10, logprobs=1, n=2), delta=delta):
            count += 1
            texts.append(output.outputs[0].text)
            tokens += output.outputs[0].token_ids
            assert all(len(part.logprobs) == len(part.token_ids) for part in output.outputs)
            await until(lambda: not engine.core.running)
        assert count == 2 and engine.core.running == {}
        assert ("".join(texts) if delta else texts[-1]) == "0123456789"
        assert len(tokens) == (10 if delta else 11)
        await llm.close()

    run(main)


@pytest.mark.covers("ENG-06")
@pytest.mark.parametrize("how", ["close", "cancel", "break"])
def test_leaving_early_aborts(online, how):
    async def main():
        llm, engine = online("x" * 60, eos=False)

        async def read():
            async for _ in llm.generate("a", SamplingParams(max_tokens=60, n=2)):
                if how == "break":
                    return
                engine.gate.clear()  # the engine goes quiet: the reader waits

        if how == "close":
            iterator = llm.generate("a", SamplingParams(max_tokens=60, n=2))
            await anext(iterator)
            await iterator.aclose()
        elif how == "break":
            await read()
            await until(lambda: any(isinstance(message, Abort) for message in engine.core.sent))
        else:
            task = asyncio.create_task(read())
            await until(lambda: not engine.gate.is_set())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        handles = [message.handle for message in engine.core.sent if isinstance(message, Add)]
        aborted = [message.handles for message in engine.core.sent if isinstance(message, Abort)]
        assert aborted == [handles] and not engine.core.running and len(llm._outputs) == 0 and not llm._streams
        await llm.close()

    run(main)


def test_a_finished_request_is_not_aborted(online):
    async def main():
        llm, engine = online()
        await collect(llm, "a", LONG)
        assert [type(message) for message in engine.core.sent] == [Add] and not llm._streams
        await llm.close()

    run(main)


def test_abort_by_id(online):
    async def main():
        llm, engine = online("x" * 60, eos=False)
        outputs = []
        async for output in llm.generate("a", ENDLESS, request_id="r1", delta=True):
            outputs.append(output)
            if len(outputs) == 3:
                await llm.abort("r1")
        assert outputs[-1].finished and outputs[-1].outputs[0].finish_reason == "abort"
        assert outputs[-1].request_id == "r1" and not engine.core.running
        await llm.abort("r1")
        await llm.abort("never")
        assert sum(isinstance(message, Abort) for message in engine.core.sent) == 1
        await llm.close()

    run(main)


def test_stop_texts_end_the_engines_work(online):
    async def main():
        llm, engine = online("one two three", eos=False)
        outputs = await collect(llm, "a", SamplingParams(max_tokens=60, stop=["two"]), delta=True)
        assert "".join(output.outputs[0].text for output in outputs) == "one "
        assert outputs[-1].outputs[0].stop_reason == "two"
        await until(lambda: not engine.core.running)
        await llm.close()

    run(main)


@pytest.mark.parametrize("how", ["dies", "failed message", "front end"])
def test_engine_death_reaches_everyone(online, how):
    async def main():
        llm, engine = online("x" * 60, eos=False)
        tasks = [asyncio.create_task(collect(llm, "a", ENDLESS)) for _ in range(3)]
        await until(lambda: len(engine.core.running) == 3)
        engine.gate.clear()
        call = asyncio.create_task(llm.call("wait"))
        await asyncio.sleep(0)
        assert llm.healthy
        gone = EngineError("CORE-E101", "out of memory", hint="buy more")
        if how == "dies":
            engine.die(gone)
        else:
            engine.answers.clear()
            engine.answers.append(Failed(gone.to_dict()) if how == "failed message" else None)
            if how == "front end":
                llm._link._dispatch = lambda message: 1 / 0
            engine.gate.set()
        results = await asyncio.gather(*tasks, call, return_exceptions=True)
        code = "CORE-E151" if how == "front end" else "CORE-E101"
        assert [(type(result), result.code) for result in results] == [(EngineError, code)] * 4
        assert len({id(result) for result in results}) == 4
        assert not llm.healthy
        with pytest.raises(EngineError, match=code):
            await collect(llm, "a", LONG)
        with pytest.raises(EngineError, match=code):
            await llm.call("stats")
        await llm.close()
        assert engine.closed == 1

    run(main)


def test_an_engine_that_is_gone_when_a_request_is_sent(online):
    async def main():
        llm, engine = online()
        llm.listen = lambda: None  # nobody has noticed yet
        engine.die(EngineError("CORE-E101", "gone"))
        with pytest.raises(EngineError, match="gone"):
            await collect(llm, "a", LONG)
        assert not llm.healthy and len(llm._outputs) == 0 and not llm._streams

    run(main)


def test_outputs_that_came_before_the_death_are_still_read(online):
    async def main():
        llm, engine = online("hi")
        stream = await llm.submit(GenerationRequest(prompt="a", params=LONG))
        await until(lambda: not engine.core.running)
        engine.die(EngineError("CORE-E101", "gone"))
        await until(lambda: not llm.healthy)
        assert (await anext(stream)).outputs[0].text == "hi"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        await llm.close()

    run(main)


def test_refusals_come_before_the_engine_hears_of_it(online):
    async def main():
        llm, engine = online()
        for prompt, params, param in (
            ("", LONG, "prompt"),
            ([5] * 64, LONG, "prompt"),
            ("x" * 40_000, LONG, "prompt"),
            ("a", SamplingParams(max_tokens=64), "max_tokens"),
            ("a", SamplingParams(stop_token_ids=[999]), "stop_token_ids"),
        ):
            with pytest.raises(RequestError) as caught:
                await llm.submit(GenerationRequest(prompt=prompt, params=params))
            assert caught.value.param == param
        assert engine.core.sent == []
        await llm.close()

    run(main)


def test_a_full_line_is_refused_with_503(online):
    async def main():
        llm, engine = online("x" * 60, eos=False, scheduler={"max_num_seqs": 2, "max_waiting": 2})
        engine.gate.clear()
        first = await llm.submit(GenerationRequest(prompt="a", params=SamplingParams(max_tokens=9, n=3)))
        with pytest.raises(RequestError) as caught:
            await llm.submit(GenerationRequest(prompt="a", params=SamplingParams(max_tokens=9, n=2)))
        assert (caught.value.status, caught.value.code) == (503, "overloaded")
        second = await llm.submit(GenerationRequest(prompt="a", params=SamplingParams(max_tokens=9)))
        await first.aclose()
        third = await llm.submit(GenerationRequest(prompt="a", params=SamplingParams(max_tokens=9, n=3)))
        for stream in (second, third):
            await stream.aclose()
        await llm.close()

    run(main)


def test_duplicate_ids_are_refused_while_they_run(online):
    async def main():
        llm, engine = online("x" * 60, eos=False)
        engine.gate.clear()
        stream = await llm.submit(
            GenerationRequest(prompt="a", params=LONG, request_id="r", priority=3, cache_salt="s")
        )
        assert (engine.core.sent[0].priority, engine.core.sent[0].cache_salt) == (3, "s")
        with pytest.raises(RequestError, match="in use"):
            await llm.submit(GenerationRequest(prompt="a", params=LONG, request_id="r"))
        await stream.aclose()
        again = await llm.submit(GenerationRequest(prompt="a", params=LONG, request_id="r"))
        await again.aclose()
        await llm.close()

    run(main)


def test_calls(online):
    async def main():
        llm, _ = online()
        assert await asyncio.gather(llm.call("a", 1), llm.call("b")) == [["a", 1], ["b"]]
        with pytest.raises(EngineError, match="no such method"):
            await llm.call("fail")
        assert llm._link._calls == {}
        await llm.close()

    run(main)


def test_close_ends_open_requests_and_is_repeatable(online):
    async def main():
        llm, engine = online("x" * 60, eos=False)
        engine.gate.clear()  # before the request, which would end at the model's length
        task = asyncio.create_task(collect(llm, "a", ENDLESS))
        await until(lambda: engine.core.running)
        await llm.close()
        with pytest.raises(EngineError, match="CORE-E150"):
            await task
        await llm.close()
        assert not llm.healthy and engine.closed == 2
        assert "core-receive" not in {task.get_name() for task in asyncio.all_tasks()}

    run(main)


def test_facts(online, tokenizer):
    async def main():
        llm, _ = online(model={"served_model_name": "public"}, generation={"top_p": 0.5})
        assert (llm.model_name, llm.max_model_len, llm.tokenizer) == ("public", 64, tokenizer)
        assert llm.config.dtype == "float32" and llm.default_params.top_p == 0.5
        chat = Conversation(messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}])
        ids = llm.render_chat(GenerationRequest(prompt=chat))
        assert tokenizer.decode(ids, skip_special_tokens=False) == (
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        )
        await llm.close()

    run(main)


def test_a_long_text_is_tokenised_off_the_loop(online):
    async def main():
        llm, _ = online("ok", max_model_len=20_000)
        threads = []
        encode = llm.tokenizer.encode_batch

        class Watched:
            def __getattr__(self, name):
                return getattr(llm.tokenizer, name)

            def encode_batch(self, texts, *, add_special_tokens=True):
                import threading

                threads.append(threading.current_thread() is threading.main_thread())
                return encode(texts, add_special_tokens=add_special_tokens)

        llm.model.inputs.tokenizer = Watched()
        assert (await collect(llm, "x" * 17_000, LONG))[-1].outputs[0].text == "ok"
        assert (await collect(llm, "short", LONG))[-1].outputs[0].text == "ok"
        assert threads == [False, True]
        await llm.close()

    run(main)


def test_start_resolves_and_opens(monkeypatch, online):
    async def main():
        made, engine = online()
        seen = {}

        def resolve(options, *, prepare):
            seen["options"], seen["prepare"] = options, prepare
            return type("R", (), {"config": made.config, "reader": made.model and _Reader(made)})

        async def open_async(config, *, in_process=False, on_progress=None):
            seen["in_process"] = in_process
            return engine

        monkeypatch.setattr("core.selection.resolver.resolve", resolve)
        monkeypatch.setattr("core.engine.client.open_async", open_async)
        llm = await type(made).start("m", in_process=True, max_num_seqs=4)
        assert (seen["options"].model.model, seen["options"].scheduler.max_num_seqs) == ("m", 4)
        assert seen["in_process"] and seen["prepare"] is not None  # the libraries are loaded in this process
        assert (await collect(llm, "a", LONG))[-1].finished
        await llm.close()
        broken = type("R", (), {"config": made.config, "reader": None})
        monkeypatch.setattr("core.selection.resolver.resolve", lambda options, prepare: broken)
        with pytest.raises(AttributeError):
            await type(made).start()
        assert engine.closed == 2

    run(main)


class _Reader:
    def __init__(self, llm):
        self.tokenizer = lambda path: llm.tokenizer
