"""Vectors as route plugins ask for them: what the start shows, what Ollama's clients get, what is bounded."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from core_plugin_ollama.manifest import OLLAMA
from core_plugin_ollama.routes import OllamaRoutes
from core_plugin_pool.model import PooledVector, PoolingModel
from core_plugin_pooling.manifest import POOLING
from core_plugin_pooling.routes import PoolingRoutes

from core import PoolingParams
from core.api import MAX_PROMPTS, ChatRequest, PluginError, RequestError, ScoreRequest, VectorRequest
from core.api.shapes import PoolingShape
from core.frontend.inputs import InputProcessor
from core.selection.no_tokenizer import NoTokenizer
from core.server.plugin_routes.client import ServedClient
from core.server.plugin_routes.table import RouteTable
from core_testing.served import served_app

EMBEDS = PoolingShape(normalize=False)
SCORES = PoolingShape(task="classify", method="cls", labels=("match",), activation="sigmoid")
CLASSES = PoolingShape(task="classify", method="cls", labels=("bad", "good"))
TOKENS = PoolingShape(task="classify", method="all", labels=("a", "b"))


@pytest.fixture
def pooling(fake):
    """Make a model whose vectors are tenths."""

    class PoolingLLM(fake):
        async def pool(self, work, **treatment):
            return work.finish([PooledVector(np.arange(1, 4, dtype=np.float32) / 10, 1) for _ in work.prompts])

    def make(shape=EMBEDS):
        llm = PoolingLLM()
        inputs = InputProcessor(llm.tokenizer, vocab_size=300, max_model_len=64)
        llm.pooling = PoolingModel(llm.model_name, shape, inputs, 3)
        return llm

    return make


@pytest.fixture
def client(options):
    return lambda llm: ServedClient(served_app(llm, options()).state.core)


@pytest.mark.parametrize(
    ("shape", "path"),
    [(EMBEDS, "/v1/embeddings"), (SCORES, "/score"), (CLASSES, "/classify"), (TOKENS, "/pooling"), (None, None)],
)
def test_the_start_shows_a_request_that_the_model_answers(shape, path, fake, pooling, options):
    table, plugin = RouteTable(), PoolingRoutes({})
    plugin.declare(table.registry("pooling", "'pooling' (tested)", POOLING))
    llm = fake() if shape is None else pooling(shape)
    found = table.first_request(served_app(llm, options()).state.core)
    assert (found and found[0]) == path
    if shape is EMBEDS:
        llm.tokenizer = NoTokenizer(300)
        assert table.first_request(served_app(llm, options()).state.core) == ("/pooling", {"data": {}})


def test_a_plugin_that_cannot_say_it_is_named(fake, options):
    table = RouteTable()
    table.registry("pooling", "'pooling' (tested)", POOLING).first_request(lambda client: 1 / 0)
    with pytest.raises(PluginError, match=r"CORE-P108 .*'pooling' \(tested\).*ZeroDivisionError"):
        table.first_request(served_app(fake(), options()).state.core)


def test_vectors_of_prompts_of_every_kind(pooling, client):
    chat = ChatRequest(messages=[{"role": "user", "content": "hi"}], opened=False)
    done = asyncio.run(client(pooling()).pool(VectorRequest(prompts=["ab", [5, 6], chat]), prefix="v"))
    assert done.id.startswith("v-") and [one.shape for one in done.results] == [(3,)] * 3
    assert (done.usage.prompt, done.usage.cached) == (3 + 2 + len("[user]hi") + 1, 3)


def test_work_of_the_front_half_is_run_as_it_is(pooling, client):
    asks = client(pooling())
    found = asyncio.run(asks.run(asks.front.embed(["ab", [5, 6]], PoolingParams())))
    assert [len(one.prompt_token_ids) for one in found] == [3, 2]
    assert found[0].outputs.embedding == pytest.approx([0.1, 0.2, 0.3])


def test_errors_have_the_fields_of_the_api(pooling, client):
    asks = client(pooling())
    cases = {
        "words": VectorRequest(prompts=["a"] * (MAX_PROMPTS + 1), names={"prompts": "words"}),
        "text": VectorRequest(prompts=["x" * 100], names={"prompts": "text"}),
        "length": VectorRequest(prompts=["a"], params={"dimensions": 2}, names={"dimensions": "length"}),
        "b": ScoreRequest(queries=["a"] * 2, documents=["b"] * 3, names={"documents": "b"}),
    }
    for name, request in cases.items():
        with pytest.raises(RequestError) as refused:
            asyncio.run(asks.pool(request, prefix="v"))
        assert (refused.value.param, refused.value.status) == (name, 400)
    with pytest.raises(RequestError, match="cannot classify"):
        asks.pooler("classify")


def test_ollamas_clients_get_float32_in_as_few_digits_as_it_has(pooling, options):
    from httpx import ASGITransport, AsyncClient

    app = served_app(pooling(), options(), {OLLAMA: OllamaRoutes({})})

    async def ask(path, body):
        async with AsyncClient(transport=ASGITransport(app), base_url="http://t") as http:
            return (await http.post(path, json=body)).json()

    found = asyncio.run(ask("/api/embed", {"input": ["a", "b"]}))
    assert found["embeddings"] == [[0.1, 0.2, 0.3]] * 2 and found["prompt_eval_count"] == 4
    assert asyncio.run(ask("/api/embeddings", {"prompt": "a"})) == {"embedding": [0.1, 0.2, 0.3]}
    assert "empty text" in asyncio.run(ask("/api/embed", {"input": ["a", ""]}))["error"]
