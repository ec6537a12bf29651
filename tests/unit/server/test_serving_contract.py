"""`core.api.serving`: what a route plugin is given of an answer, and how core runs what it replies with."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import httpx
import pytest

from core.api import ChatRequest, Dialect, Finish, Reply, RequestError, RouteResponse, RouteSpec, Text, TextRequest
from core.api.bodies import Body, up_to
from core_testing.served import served_app

SPEC = RouteSpec(name="said", impl="x:Y", api=1, summary="s", mounts=("/said",))
CHAT = ChatRequest(messages=[{"role": "user", "content": "hi"}])


class Job:
    """Puts the text of an answer into the outlet as it comes; a word may break the stream off."""

    def __init__(self, answer, breaks_at=None):
        self.answer, self.breaks_at, self.steps = answer, breaks_at, 0

    async def collect(self):
        parts = []
        await self.answer.run(lambda deltas: parts.extend(deltas) or True)
        return json.dumps("".join(event.text for delta in parts for event in delta.events)).encode()

    async def stream(self, outlet):
        def take(deltas):
            if self.steps == self.breaks_at:
                raise RequestError("enough", status=422)
            self.steps += 1
            return outlet.put("".join(event.text for delta in deltas for event in delta.events).encode())

        async def more():
            await outlet.room()
            return True

        await self.answer.run(take, more)


class Asked(Body):
    words: list[str] = up_to(3, 1)
    n: int | None = None


class Plugin:
    """Answers `POST /said` with a job over what `asked` is."""

    def __init__(self, asked=CHAT, **job):
        self.asked, self.job, self.client = asked, job, None

    def declare(self, registry):
        def error(error):
            return {"oh": error.message, "field": error.param}

        registry.dialect(Dialect(error, lambda error: 418, b"[END]", lambda error: b"!" + error.message.encode()))
        registry.dialect(Dialect(lambda error: {"below": error.message}), place="/said/below")
        registry.add("POST", "/said", self.say)
        registry.add("POST", "/said/below", self.say)
        registry.add("POST", "/said/body", self.read, body=Asked)

    def bind(self, client):
        self.client = client

    async def say(self, request):
        fields = await request.json()
        answer = await self.client.open(self.asked, prefix="said")
        return Reply(Job(answer, **self.job), bool(fields.get("stream")), {"x-said": answer.id}, "text/said")

    async def read(self, request):
        body, fields = await request.read(Asked)
        return RouteResponse(json.dumps(body.words).encode(), headers=self.client.unread(fields, Asked.model_fields))


@pytest.fixture
def said(options):
    """`said(llm, plugin)` makes an application; what it returns asks it."""

    def make(llm, plugin, **server):
        app = served_app(llm, options(**server), {SPEC: plugin})

        def ask(path="/said", **body):
            async def go():
                async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client:
                    return await client.post(path, json=body)

            return asyncio.run(go())

        return ask

    return make


def taken(client, request, **open_):
    """Return an answer that has run, and all that came."""

    async def go():
        answer, deltas = await client.open(request, prefix="a", **open_), []
        await answer.run(lambda found: deltas.extend(found) or True)
        return answer, deltas

    return asyncio.run(go())


def texts(deltas, count=1):
    found = [""] * count
    for delta in deltas:
        found[delta.index] += "".join(event.text for event in delta.events if isinstance(event, Text))
    return found


def test_a_conversation_is_answered_in_deltas(fake, said):
    llm, plugin = fake(reply="abc", cached=2), Plugin()
    said(llm, plugin)
    answer, deltas = taken(plugin.client, CHAT)
    assert texts(deltas) == ["abc"] and deltas[-1].finish == Finish("stop") and deltas[0].finish is None
    assert [list(delta.token_ids) for delta in deltas] == [[97], [98], [99]]
    assert (answer.usage.completion, answer.usage.cached, answer.usage.prompt) == (3, 2, len(llm.requests[0]["ids"]))
    assert 0 <= answer.timings.first_token <= answer.timings.total and answer.id.startswith("a-")
    assert llm.requests[0]["id"] == answer.id


def test_several_sequences_and_their_scores(fake, said):
    plugin = Plugin()
    said(fake(reply=["ab", "c"]), plugin)
    sampling = {"n": 2, "logprobs": 1, "prompt_logprobs": 0, "max_tokens": 9}
    answer, deltas = taken(plugin.client, TextRequest(prompts=["xy"], sampling=sampling))
    assert texts(deltas, 2) == ["ab", "c"]
    (score,) = deltas[0].scores
    assert (score.id, score.token, list(score.bytes), score.logprob) == (97, "a", [97], -0.5)
    assert [one.id for one in score.top] == [97]
    first, *rest = answer.prompts[0].scores
    assert first is None and [(one.id, one.top) for one in rest] == [(120, []), (121, [])]


def test_a_prompt_that_is_only_computed_adds_nothing(fake, said):
    llm, plugin = fake(reply="abc"), Plugin()
    said(llm, plugin)
    answer, deltas = taken(plugin.client, TextRequest(prompts=[[1, 2]], sampling={"max_tokens": 40}, only_prompt=True))
    assert texts(deltas) == [""] and deltas[-1].finish == Finish("length") and answer.usage.completion == 0
    assert llm.requests[0]["params"].max_tokens == 1


def test_a_limit_is_fitted_where_the_api_wants_that(fake, said):
    plugin = Plugin()
    said(fake(reply="abc", max_model_len=20), plugin)
    prompt = [1] * 15
    answer, _ = taken(plugin.client, TextRequest(prompts=[prompt], sampling={"max_tokens": 100}, fitted=True))
    assert answer.fitted and answer.usage.completion == 3
    answer, _ = taken(plugin.client, TextRequest(prompts=[prompt], sampling={"max_tokens": 4}, fitted=True))
    assert not answer.fitted


def test_answers_that_are_opened_together_count_as_they_begin(fake, said):
    """A request of many prompts is no way around the bound of what may wait."""
    plugin = Plugin()
    said(fake(reply="abc", hold_at=0), plugin, max_waiting=1, max_num_seqs=2)

    async def go():
        opened = [await plugin.client.open(TextRequest(prompts=["x"]), prefix="a") for _ in range(5)]
        running = [asyncio.create_task(one.run(lambda deltas: True)) for one in opened]
        done, _ = await asyncio.wait(running, timeout=0.2)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return [task.exception() for task in done]

    refused = asyncio.run(asyncio.wait_for(go(), 20))
    assert [(error.status, error.code) for error in refused] == [(503, "queue_full")] * 2


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (ChatRequest(messages=[], names={"messages": "turns"}), "turns"),
        (ChatRequest(messages=CHAT.messages, sampling={"temperature": -1}, names={"temperature": "heat"}), "heat"),
        (TextRequest(prompts=[[10**6]], names={"prompt": "text"}), "text"),
        (TextRequest(prompts=["x"], structured={"json": 5}, names={"structured.json": "form.schema"}), "form.schema"),
        (TextRequest(prompts=["x"], structured={"regex": "a", "choice": ["b"]}), "structured"),
    ],
)
def test_what_is_wrong_is_named_as_the_api_names_it(fake, said, asked, param):
    plugin = Plugin()
    said(fake(), plugin)
    with pytest.raises(RequestError) as refused:
        taken(plugin.client, asked)
    assert (refused.value.param or "").startswith(param) and refused.value.status == 400


def test_replies_are_whole_or_streamed_with_their_own_media_type(fake, said):
    ask = said(fake(reply="abc"), Plugin())
    whole, stream = ask(), ask(stream=True)
    assert (whole.json(), whole.headers["content-type"]) == ("abc", "application/json")
    assert (stream.text, stream.headers["content-type"].partition(";")[0]) == ("abc[END]", "text/said")
    assert whole.headers["x-said"].startswith("said-")


def test_an_error_is_said_in_the_plugins_dialect_before_and_behind_the_first_byte(fake, said):
    early, late = said(fake(reply="abc"), Plugin(breaks_at=0)), said(fake(reply="abc"), Plugin(breaks_at=2))
    answer = early(stream=True)
    assert (answer.status_code, answer.json()) == (418, {"oh": "enough", "field": None})
    assert late(stream=True).text == "ab!enough[END]"
    assert early("/said/below", stream=True).json() == {"below": "enough"}
    assert early("/said/nothing").json()["oh"] == "There is no such route."


def test_an_engine_that_fails_says_when_to_come_back(fake, said, engine_error):
    ask = said(fake(failure=engine_error, fail_at=1), Plugin())
    whole = ask()
    assert whole.status_code == 418 and whole.headers["retry-after"] == "1"


def test_bodies_are_checked_and_their_fields_known(fake, said):
    ask = said(fake(), Plugin())
    assert ask("/said/body", words=[]).json()["field"] == "words"
    assert ask("/said/body", words=["a"], n="x").json()["field"] == "n"
    assert ask("/said/body", words=["a"], model="other").json()["oh"].startswith("The model 'other' does not exist")
    answer = ask("/said/body", words=["a"], odd=1)
    assert (answer.json(), answer.headers["x-core-ignored-fields"]) == (["a"], "odd")
    strict = said(fake(), Plugin(), strict_fields=True)
    assert strict("/said/body", words=["a"], odd=1).json()["field"] == "odd"


def test_a_drain_waits_for_a_reply_and_a_stop_ends_it(fake, options):
    llm, plugin = fake(reply="abc", hold_at=1), Plugin()
    app = served_app(llm, options(), {SPEC: plugin})
    lifecycle = app.state.core.lifecycle

    async def go():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client:
            asked = asyncio.create_task(client.post("/said", json={"stream": True}))
            while not lifecycle.work:
                await asyncio.sleep(0.005)
            drained = await lifecycle.idle(0.05)
            while not llm.requests:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            lifecycle.stop()
            return drained, (await asked).text

    drained, text = asyncio.run(asyncio.wait_for(go(), 20))
    assert not drained and text == "a!The server is shutting down.[END]" and len(llm.aborted) == 1


def test_models_that_give_vectors_are_not_asked(fake, said):
    plugin = Plugin()
    said(fake(pooling=SimpleNamespace(name="tiny", gives="embeddings", tasks=("embed",))), plugin)
    assert plugin.client.abilities == {"embed"}
    for ask in (plugin.client.open(CHAT, prefix="a"), plugin.client.describe(CHAT)):
        with pytest.raises(RequestError) as refused:
            asyncio.run(ask)
        assert refused.value.status == 400


def test_what_a_conversation_becomes_is_shown_without_generating(fake, said):
    llm, plugin = fake(), Plugin()
    said(llm, plugin)
    assert len(asyncio.run(plugin.client.render(CHAT))) == len("[user]hi") + 1
    (shown,) = asyncio.run(plugin.client.describe(CHAT))
    assert shown["count"] == len("[user]hi") + 1 and shown["prompt"].endswith("[user]hi") and llm.requests == []
