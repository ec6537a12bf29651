"""One request on its way to the engine: the object that the route made arrives, its prompt's ids are converted once."""

from __future__ import annotations

import array
import asyncio
from collections import Counter

import httpx
import numpy as np
import pytest
from core_plugin_anthropic.manifest import ANTHROPIC
from core_plugin_anthropic.routes import AnthropicRoutes
from core_plugin_openai.manifest import OPENAI, RESPONSES
from core_plugin_openai.responses.routes import ResponsesRoutes
from core_plugin_openai.routes import OpenAIRoutes

from core import SamplingParams
from core.config.resolved import Options
from core.engine.messages import Add
from core.frontend.async_llm import AsyncLLM
from core.frontend.conversation import Conversation
from core.frontend.outputs import OutputProcessor
from core.frontend.request import GenerationRequest
from core_testing.served import served_app

USER = {"role": "user", "content": "hello end"}
BODIES = {
    "/v1/completions": {"prompt": "hello end"},
    "/v1/completions#ids": {"prompt": [70, 71, 72]},
    "/v1/completions#many": {"prompt": ["hello", "end"]},
    "/v1/completions#n": {"prompt": "hello end", "n": 3},
    "/v1/chat/completions": {"messages": [USER]},
    "/v1/chat/completions#stream": {"messages": [USER], "stream": True},
    "/v1/responses": {"input": "hello end"},
    "/v1/messages": {"messages": [USER], "max_tokens": 4},
}


@pytest.fixture
def counts(monkeypatch):
    """What is done with the ids of prompts as a whole, by name."""
    found: Counter[str] = Counter()

    class Counted(array.array):
        def __new__(cls, code, ids):
            found["made"] += 1
            return super().__new__(cls, code, ids)

        def tolist(self):
            found["to a list"] += 1
            return super().tolist()

        def __iter__(self):
            found["iterated"] += 1
            return super().__iter__()

        def tobytes(self):
            found["to bytes"] += 1
            return super().tobytes()

    for place in ("prompts", "inputs"):
        monkeypatch.setattr(f"core.frontend.{place}.array", Counted)
    return found


def asked(llm, path, body):
    """Return the answer to a body by the server's own application."""
    options = Options.model_validate({"model": {"model": "tiny"}})
    plugins = {OPENAI: OpenAIRoutes({}), RESPONSES: ResponsesRoutes({}), ANTHROPIC: AnthropicRoutes({})}
    transport = httpx.ASGITransport(served_app(llm, options, plugins))

    async def ask():
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post(path.partition("#")[0], json=body)

    return ask()


def added(core):
    return [one for one in core.sent if isinstance(one, Add)]


@pytest.mark.parametrize("path", BODIES)
def test_ids_are_converted_once_on_their_way_from_a_route(online, counts, path):
    body = BODIES[path]

    async def main():
        llm, engine = online()
        answer = await asked(llm, path, body)
        await llm.close()
        return answer, added(engine.core)

    answer, adds = asyncio.run(main())
    assert answer.status_code == 200, answer.text
    prompts = len(body["prompt"]) if path.endswith("#many") else 1
    assert counts == {"made": prompts, "to bytes": prompts}
    assert len(adds) == prompts * body.get("n", 1)
    assert all(one.prompt is adds[0].prompt for one in adds) or prompts > 1


@pytest.mark.parametrize("prompt", ["hello end", [70, 71, 72], Conversation(messages=[USER])], ids=lambda _: None)
def test_ids_are_converted_once_in_python(online, offline, counts, prompt):
    async def main():
        llm, _ = online()
        async for _ in llm.generate(prompt, SamplingParams(max_tokens=2)):
            pass
        await llm.close()

    asyncio.run(main())
    assert counts == {"made": 1, "to bytes": 1}
    llm, _ = offline()
    counts.clear()
    if isinstance(prompt, Conversation):
        llm.chat(prompt.messages)
    else:
        llm.generate(prompt)
    assert counts == {"made": 1, "to bytes": 1}


@pytest.mark.parametrize("path", BODIES)
def test_what_a_route_made_is_what_the_messages_are_made_of(online, monkeypatch, path):
    """The submitted request is the prepared one; nothing on the way makes another of its fields."""
    submitted, prepared, made = [], [], []
    submit, add, init = AsyncLLM.submit, OutputProcessor.add, GenerationRequest.__post_init__

    async def noting_submit(self, request, *, delta=False):
        submitted.append(request)
        return await submit(self, request, delta=delta)

    def noting_add(self, one, name=None):
        prepared.append(one)
        return add(self, one, name)

    monkeypatch.setattr(AsyncLLM, "submit", noting_submit)
    monkeypatch.setattr(OutputProcessor, "add", noting_add)
    monkeypatch.setattr(GenerationRequest, "__post_init__", lambda self: made.append(self) or init(self))
    fields = {"cache_salt": "salt", "request_id": "mine", "priority": 7}
    if path not in ("/v1/messages", "/v1/responses"):
        fields |= BODIES[path]
    else:
        fields = BODIES[path]

    async def main():
        llm, engine = online()
        answer = await asked(llm, path, fields)
        await llm.close()
        return answer, added(engine.core)

    answer, adds = asyncio.run(main())
    assert answer.status_code == 200, answer.text
    assert [id(one.request) for one in prepared] == [id(one) for one in submitted]
    assert len(made) == 2 * len(submitted)  # by the route, and once more with its name and what rendering has found
    treated = {(one.priority, one.cache_salt) for one in adds}
    assert treated == {(7, "salt") if "priority" in fields else (0, None)}
    whole = {np.frombuffer(one.prompt, "<i4").tobytes() for one in adds}
    assert whole == {one.prompt.ids.tobytes() for one in prepared}
