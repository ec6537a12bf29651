"""Pooling in front of the engine: prompts in, vectors out, and everything that can go wrong between."""

import asyncio
from collections import deque
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from core_plugin_pool.engine import Vector
from core_plugin_pool.model import PoolingModel, normalized

from core import PoolingParams
from core.api.errors import EngineError, RequestError
from core.api.requests import Reject
from core.api.shapes import PoolingShape
from core.engine.messages import Abort, Add, Finished, Outputs, Ready, Started, Stats
from core.frontend.async_llm import AsyncLLM
from core.frontend.inputs import InputProcessor
from core.frontend.llm import LLM
from core.frontend.request import GenerationRequest
from core.frontend.tasks.requests import TaskRequests

SIZE = 8
EMBEDS = PoolingShape(bidirectional=True)


def vector_of(ids):
    return np.array([len(ids), *ids[: SIZE - 1], *[1] * (SIZE - 1 - len(ids[: SIZE - 1]))], np.float32)


def ended(handle, array):
    return Finished(handle, "stop", parts={"pool": Vector.of(array)})


class PoolEngine:
    """Answers each prompt in a step of its own with `vector_of` it; fails those whose first id is in `bad`."""

    def __init__(self, bad=(), longest=64):
        self.ready = Ready(num_blocks=100, block_size=16, max_model_len=longest, facts={}, timeline=[])
        self.bad, self.queue, self.aborted, self.adds = set(bad), deque(), [], []
        self.dead = None
        self.arrived = asyncio.Event()
        self.hold = False
        self.closed = False

    def send(self, message):
        if isinstance(message, Add):
            self.adds.append(message)
            self.queue.append(message)
            self.arrived.set()
        elif isinstance(message, Abort):
            self.aborted += message.handles
            self.queue = deque(one for one in self.queue if one.handle not in message.handles)

    def step(self):
        if not self.queue:
            return []
        message = self.queue.popleft()
        ids = np.frombuffer(message.prompt, "<i4").tolist()
        outputs = Outputs(started=[Started(message.handle, 2)], stats=Stats(running=1))
        if ids[0] in self.bad:
            outputs.finished.append(Finished(message.handle, "error", None, "it broke"))
        else:
            array = vector_of(ids)
            whole = message.parts["pool"].method == "all"
            outputs.finished.append(ended(message.handle, np.stack([array] * len(ids)) if whole else array))
        return [outputs]

    def close(self):
        self.closed = True


class AsyncPoolEngine(PoolEngine):
    async def receive(self):
        while not self.queue or self.hold:
            if self.dead is not None:
                raise self.dead
            self.arrived.clear()
            await self.arrived.wait()
        return self.step()[0]

    def die(self, error):
        self.dead = error
        self.hold = True
        self.arrived.set()

    def alive(self):
        return self.dead is None

    async def close(self):
        self.closed = True


@pytest.fixture
def resolution(resolved, pooling):
    def make(shape=EMBEDS, **sections):
        made = resolved(**sections)
        return made if shape is None else SimpleNamespace(config=pooling(made.config, shape), reader=made.reader)

    return make


@pytest.fixture
def model(tokenizer):
    def make(shape=EMBEDS, longest=16):
        return PoolingModel("m", shape, InputProcessor(tokenizer, vocab_size=300, max_model_len=longest), SIZE)

    return make


def run(model, work):
    """Answer work without an engine."""
    from core_plugin_pool.model import PooledVector

    return work.finish([PooledVector(vector_of(one.ids), 1) for one in work.prompts])


# -- the model --------------------------------------------------------------------------------------------------------


def test_every_form_of_prompt(model):
    prompts = ["hello", [5, 6], (7,), {"prompt": "end"}, {"prompt_token_ids": [8, 9]}]
    work = model().embed(prompts, PoolingParams())
    assert [len(one.ids) for one in work.prompts][1:3] == [2, 1]
    assert work.prompts[4].ids == [8, 9]
    assert {one.pooling.method for one in work.prompts} == {"mean"}
    found = run(model(), work)
    assert [one.prompt_token_ids for one in found] == [one.ids for one in work.prompts]
    assert found[0].num_cached_tokens == 1
    np.testing.assert_allclose([np.linalg.norm(one.outputs.array) for one in found], 1.0, atol=1e-6)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ([], "must not be empty"),
        ("", "must not be empty"),
        (["a"], "must be integers"),
        ([300], "out of the vocabulary"),
        ([-1], "out of the vocabulary"),
        (5, "a text or a list of token ids, got int"),
        ({"prompt": None}, "got NoneType"),
        ({"prompt": "a", "image": 1}, "no 'image'"),
        ("\ud800", "not valid Unicode"),
        ([1] * 17, "17 tokens"),
    ],
)
def test_prompts_that_cannot_be(model, prompt, said):
    with pytest.raises(RequestError, match=said) as refused:
        model().embed([prompt], PoolingParams(), param="input")
    assert refused.value.param == "input"


def test_a_prompt_may_be_as_long_as_the_model(model):
    assert len(model().embed([[1] * 16], PoolingParams()).prompts[0].ids) == 16


@pytest.mark.parametrize(("limit", "kept"), [(-1, 16), (16, 16), (5, 5), (1, 1)])
def test_prompts_are_cut_only_when_asked(model, limit, kept):
    cut = PoolingParams(truncate_prompt_tokens=limit)
    for prompt in (list(range(30)), "x" * 40):
        assert len(model().embed([prompt], cut).prompts[0].ids) == kept
    assert model().embed([list(range(30))], cut).prompts[0].ids == list(range(kept))


@pytest.mark.parametrize("limit", [0, -2, 17, True])
def test_limits_that_make_no_sense(model, limit):
    with pytest.raises(RequestError) as refused:
        model().embed(["a"], PoolingParams(truncate_prompt_tokens=limit))
    assert refused.value.param == "truncate_prompt_tokens"


@pytest.mark.parametrize(
    ("shape", "allowed", "refused"),
    [
        (EMBEDS, [SIZE], [1, 9]),
        (EMBEDS.model_copy(update={"dimensions": (2, 4)}), [2, 4, SIZE], [3, 9]),
        (EMBEDS.model_copy(update={"any_dimensions": True}), [1, 3, SIZE], [9]),
    ],
)
def test_dimensions_only_where_the_model_was_made_for_it(model, shape, allowed, refused):
    for size in allowed:
        found = run(model(shape), model(shape).embed([[3, 4]], PoolingParams(dimensions=size)))[0].outputs.array
        expected = vector_of([3, 4])[:size]
        np.testing.assert_allclose(found, expected / np.linalg.norm(expected), rtol=1e-6)
    for size in refused:
        with pytest.raises(RequestError, match=f"dimensions {size}") as error:
            model(shape).embed([[3, 4]], PoolingParams(dimensions=size))
        assert error.value.param == "dimensions"


@pytest.mark.parametrize(("made", "asked", "unit"), [(True, None, True), (True, False, False), (False, True, True)])
def test_who_decides_on_normalising(model, made, asked, unit):
    shape = EMBEDS.model_copy(update={"normalize": made})
    found = run(model(shape), model(shape).embed([[3]], PoolingParams(normalize=asked)))[0].outputs.array
    assert bool(abs(np.linalg.norm(found) - 1) < 1e-6) is unit
    assert (normalized(np.zeros(4, np.float32)) == 0).all()


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        ("none", [2.0, 1000.0, -1000.0]),
        ("softmax", [0.0, 1.0, 0.0]),
        ("sigmoid", [0.8807970, 1.0, 0.0]),
    ],
)
def test_activations_are_safe_with_large_numbers(model, activation, expected):
    from core_plugin_pool.model import PooledVector

    labels = ("a", "b", "c")
    shape = PoolingShape(task="classify", method="cls", labels=labels, activation=activation)
    work = model(shape).classify([[1]], PoolingParams())
    with np.errstate(all="raise", under="ignore"):
        found = work.finish([PooledVector(np.float32([2, 1000, -1000]))])[0].outputs
    np.testing.assert_allclose(found.probs, expected, atol=1e-6)
    assert (found.label, found.num_classes) == ("b", 3)
    raw = model(shape).classify([[1]], PoolingParams(use_activation=False))
    assert raw.finish([PooledVector(np.float32([2, 1, 0]))])[0].outputs.probs == [2, 1, 0]


@pytest.mark.parametrize(
    ("shape", "tasks"),
    [
        (EMBEDS, ("embed", "token_embed", "score")),
        (PoolingShape(task="classify", method="cls", labels=("a", "b")), ("classify",)),
        (PoolingShape(task="classify", method="cls", labels=("a",)), ("classify", "score")),
        (PoolingShape(task="classify", method="all", labels=("a", "b")), ("token_classify",)),
    ],
)
def test_what_models_can_be_asked_for(model, shape, tasks):
    made = model(shape)
    assert made.tasks == tasks
    for task in {"embed", "token_embed", "score", "classify", "token_classify", "dance"} - set(tasks):
        with pytest.raises(RequestError, match=f"cannot {task}") as refused:
            made.check(task)
        assert (refused.value.status, refused.value.code) == (400, "task_not_supported")


def test_a_tokenizer_that_knows_no_pairs(tokenizer):
    class Plain:
        def __getattr__(self, name):
            if name == "fit":
                raise AttributeError(name)
            return getattr(tokenizer, name)

    inputs = InputProcessor(Plain(), vocab_size=300, max_model_len=16)
    scores = PoolingModel("m", PoolingShape(task="classify", method="cls", labels=("a",)), inputs, SIZE)
    with pytest.raises(RequestError, match="two texts into one prompt"):
        scores.score(["a"], ["b"], PoolingParams())
    cut = PoolingModel("m", EMBEDS, inputs, SIZE).embed(["x" * 40], PoolingParams(truncate_prompt_tokens=3))
    assert len(cut.prompts[0].ids) == 3


# -- requests in flight -----------------------------------------------------------------------------------------------


def test_a_call_that_fails_is_forgotten_as_a_whole(model):
    requests = TaskRequests("pool", model())
    batch, messages = requests.add(model().embed([[1], [2], [3]], PoolingParams()).prompts)
    other, _ = requests.add(model().embed([[4]], PoolingParams()).prompts)
    first, second, third = batch.handles
    assert requests.process(Outputs(finished=[ended(first, vector_of([1]))])) == []
    assert requests.process(Outputs(finished=[Finished(second, "error", None, "it broke")])) == [third]
    with pytest.raises(RequestError, match="it broke") as failed:
        batch.answers()
    assert failed.value.status == 500
    assert len(requests) == 1
    requests.process(Outputs(finished=[ended(third, vector_of([3]))]))  # too late
    assert not other.done
    assert [message.parts["pool"].method for message in messages] == ["mean"] * 3
    assert {message.task for message in messages} == {"pool"}


def test_a_vector_that_is_none_fails_its_call_alone(model):
    """As it arrives from the other process: plain data."""
    requests = TaskRequests("pool", model())
    (first, second), (third,) = (
        (batch := requests.add(model().embed(ids, PoolingParams()).prompts)[0]).handles for ids in ([[1], [2]], [[3]])
    )
    sent = Outputs(finished=[Finished(first, "stop", parts={"pool": [[3], b"12345678"]}), ended(third, vector_of([3]))])
    assert requests.process(msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Outputs)) == [second]
    np.testing.assert_array_equal(batch.answers()[0].vector, vector_of([3]))
    assert len(requests) == 0


# -- both front ends --------------------------------------------------------------------------------------------------


def test_offline_calls(resolution):
    engine = PoolEngine()
    with LLM.from_parts(resolution(scheduler={"max_waiting": 2}), engine) as llm:
        found = llm.embed([[1, 2], [3], [4, 5, 6], [7], [8]], PoolingParams(normalize=False))
        for ids, one in zip(([1, 2], [3], [4, 5, 6], [7], [8]), found, strict=True):
            np.testing.assert_array_equal(one.outputs.embedding, vector_of(ids))
            assert one.num_cached_tokens == 2
        assert llm.embed([5, 6])[0].prompt_token_ids == [5, 6]  # a list of integers is one prompt
        assert llm.encode([[1, 2]], pooling_task="token_embed")[0].outputs.data.shape == (2, SIZE)
        assert llm.score("ab", ["ab", "x"])[0].outputs.score == pytest.approx(1.0)
        assert llm.embed([]) == []
    assert engine.closed


def test_offline_failures_leave_nothing_behind(resolution):
    engine = PoolEngine(bad=[9])
    llm = LLM.from_parts(resolution(), engine)
    with pytest.raises(RequestError, match="it broke"):
        llm.embed([[9], [1], [2]])
    assert engine.aborted == [2, 3]
    assert llm.embed([[1]])[0].prompt_token_ids == [1]
    engine.step = list
    with pytest.raises(EngineError, match="no work left"):
        llm.embed([[1]])


def test_plugins_may_refuse_a_pooling_request(resolution):
    llm = LLM.from_parts(resolution(), PoolEngine())

    class Hooks:
        def request(self, draft, patched):
            return Reject("not you", code="no", status=403) if len(draft.prompt_token_ids) > 2 else draft

    llm.model.plugins._hooks = Hooks()
    assert llm.embed([[1, 2]])
    with pytest.raises(RequestError, match="not you") as refused:
        llm.embed([[1], [1, 2, 3]])
    assert refused.value.status == 403


async def online(resolution, engine, **sections):
    llm = AsyncLLM(resolution(**sections), engine)
    llm.listen()
    return llm


def test_online_calls_run_side_by_side(resolution):
    async def go():
        llm = await online(resolution, AsyncPoolEngine())
        calls = [llm.encode([[1 + index, 2], [3]], PoolingParams(normalize=False)) for index in range(5)]
        for index, found in enumerate(await asyncio.gather(*calls)):
            np.testing.assert_array_equal(found[0].outputs.data, vector_of([1 + index, 2]))
            np.testing.assert_array_equal(found[1].outputs.data, vector_of([3]))
        assert llm.stats.running == 1
        assert await llm.encode([]) == []
        await llm.close()

    asyncio.run(go())


def test_a_cancelled_call_is_aborted(resolution):
    async def go():
        engine = AsyncPoolEngine()
        engine.hold = True
        llm = await online(resolution, engine)
        call = asyncio.create_task(llm.encode([[1], [2]]))
        await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert engine.aborted == [1, 2]
        engine.hold = False
        assert len(await llm.encode([[3]])) == 1
        await llm.close()

    asyncio.run(go())


def test_a_dead_engine_fails_every_call(resolution):
    async def go():
        engine = AsyncPoolEngine()
        engine.hold = True
        llm = await online(resolution, engine)
        calls = [asyncio.create_task(llm.encode([[1]])) for _ in range(2)]
        await asyncio.sleep(0.01)
        engine.die(EngineError("CORE-E110", "gone"))
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, EngineError)
            assert result.code == "CORE-E110"
        with pytest.raises(EngineError, match="gone"):
            await llm.encode([[1]])
        await llm.close()

    asyncio.run(go())


def test_a_full_front_end_refuses(resolution):
    async def go():
        engine = AsyncPoolEngine()
        llm = await online(resolution, engine, scheduler={"max_waiting": 1, "max_num_seqs": 1})
        with pytest.raises(RequestError, match="busy") as refused:
            await llm.encode([[1], [2], [3]])
        assert (refused.value.status, refused.value.code) == (503, "overloaded")
        assert len(await llm.encode([[1], [2]])) == 2
        await llm.close()

    asyncio.run(go())


def test_generation_is_refused_online_and_offline(resolution):
    async def go():
        llm = await online(resolution, AsyncPoolEngine())
        with pytest.raises(RequestError, match="does not generate text") as refused:
            await llm.submit(GenerationRequest(prompt="a"))
        assert refused.value.code == "task_not_supported"
        await llm.close()

    asyncio.run(go())
    with pytest.raises(RequestError, match="does not generate text"):
        LLM.from_parts(resolution(), PoolEngine()).generate("a")
    with pytest.raises(RequestError, match="--runner pooling"):
        LLM.from_parts(resolution(None), PoolEngine()).embed("a")


def test_a_pause_that_aborts_ends_pooling_too(resolution):
    """What runs and, by its id, what waits for the pause to end."""

    async def go():
        engine = AsyncPoolEngine()
        engine.hold = True
        llm = await online(resolution, engine)
        running = asyncio.create_task(llm.encode([[1], [2]]))
        await asyncio.sleep(0.01)
        await asyncio.wait_for(llm.pause_generation(clear_cache=False), 5)
        waiting = asyncio.create_task(llm.encode([[3]]))
        await asyncio.sleep(0.01)
        assert engine.aborted == [1, 2] and llm.in_flight == 0
        for name in llm.request_ids:
            await llm.abort(name)
        for call in (running, waiting):
            with pytest.raises(RequestError, match="operator") as ended:
                await call
            assert (ended.value.status, ended.value.code) == (503, "aborted")
        assert llm.request_ids == []
        await llm.close()

    asyncio.run(go())
