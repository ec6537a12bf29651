"""The pooling routes over a scripted model: what is refused, counted, cancelled, and how answers look."""

import asyncio
import json
import threading
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from core_plugin_pool.model import PooledVector, PoolingModel
from core_plugin_pooling.encoding import decode
from core_plugin_pooling.protocol import (
    ClassifyBody,
    CohereBody,
    EmbeddingBody,
    PoolingBody,
    RerankBody,
    ScoreBody,
)

from core import PoolingParams
from core.api import Caller, key_id
from core.api.errors import RequestError
from core.api.shapes import PoolingShape
from core.frontend.inputs import InputProcessor

SIZE = 8
EMBEDS = PoolingShape(bidirectional=True, normalize=False)
CLASSES = PoolingShape(task="classify", method="cls", labels=("bad", "good"), activation="softmax")
SCORES = PoolingShape(task="classify", method="cls", labels=("match",), activation="sigmoid")
TOKENS = PoolingShape(task="classify", method="all", labels=("a", "b", "c"), activation="softmax")


@pytest.fixture
def pooling(fake):
    """Make a scripted model that pools: a prompt's vector says its length and its first bytes."""

    class PoolingLLM(fake):
        def start(self, shape, longest=64):
            self.max_model_len = longest
            inputs = InputProcessor(self.tokenizer, vocab_size=300, max_model_len=longest)
            self.pooling = PoolingModel(self.model_name, shape, inputs, SIZE)
            self.calls, self.callers, self.cancelled = [], [], 0

            # Pairs, as a byte tokenizer would have them.
            def ids_of(first, second):
                return [256, *first.encode(), *([] if second is None else [257, *second.encode()])]

            def fit(texts, limit):
                return [SimpleNamespace(ids=ids_of(*each)[:limit], second=0) for each in texts]

            self.pooling._inputs._fit = fit
            return self

        async def pool(self, work, *, priority=0, cache_salt=None, caller=None):
            self.calls.append((len(work.prompts), priority, cache_salt))
            self.callers.append(caller)
            if self.failure is not None:
                raise self.failure
            try:
                while self.hold_at is not None and not self.held.is_set():
                    await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            size = len(self.pooling.shape.labels) or SIZE
            answers = []
            for prompt in work.prompts:
                row = np.resize(np.float32([len(prompt.ids), *prompt.ids]), size)
                answers.append(
                    PooledVector(np.tile(row, (len(prompt.ids), 1)) if prompt.pooling.method == "all" else row, 1)
                )
            return work.finish(answers)

    def make(shape=EMBEDS, **fields):
        return PoolingLLM(**fields).start(shape)

    return make


@pytest.mark.parametrize(
    ("given", "lengths"),
    [("ab", [3]), (["ab", "c"], [3, 2]), ([5, 6, 7], [3]), ([[5], [6, 7]], [1, 2])],
)
def test_the_four_forms_of_input(pooling, build, given, lengths):
    answer = build(pooling()).post("/v1/embeddings", {"input": given, "user": "me", "model": "acme/tiny"})
    assert answer.status_code == 200
    body = answer.json()
    assert [one["embedding"][0] for one in body["data"]] == lengths
    assert body["usage"] == {"prompt_tokens": sum(lengths), "total_tokens": sum(lengths), "completion_tokens": 0}
    assert body["model"] == "acme/tiny"


@pytest.mark.covers("POOL-01")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": ["a", 5]}, "input"),
        ({"input": [5, "a"]}, "input"),
        ({"input": [[5], "a"]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": [300]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a" * 64}, "input"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "embed_dtype": "int8"}, "embed_dtype"),
        ({"input": "a", "endianness": "middle"}, "endianness"),
        ({"input": "a", "dimensions": 4}, "dimensions"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": 65}, "truncate_prompt_tokens"),
        ({"input": "a", "priority": "high"}, "priority"),
    ],
)
def test_what_is_wrong_is_said_with_its_field(pooling, build, body, param):
    answer = build(pooling()).post("/v1/embeddings", body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


def test_a_conversation_is_one_prompt(pooling, build):
    llm = pooling()
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "ab"}]}]
    answer = build(llm).post("/v1/embeddings", {"messages": messages})
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["prompt_tokens"] == len("[system]s[user]ab") + 1
    assert llm.rendered[0]["add_generation_prompt"] is False
    both = build(llm).post("/v1/embeddings", {"messages": messages, "input": "a"})
    assert (both.status_code, both.json()["error"]["param"]) == (400, "input")
    wrong = build(llm).post("/classify", {"messages": []})
    assert wrong.status_code == 400


def test_another_model_is_not_here(pooling, build):
    assert build(pooling()).post("/v1/embeddings", {"input": "a", "model": "other"}).status_code == 404


def test_unknown_fields_are_reported(pooling, build):
    answer = build(pooling()).post("/v1/embeddings", {"input": "a", "color": "red"})
    assert answer.headers["x-core-ignored-fields"] == "color"


def test_priority_and_salt_reach_the_engine(pooling, build):
    llm = pooling()
    build(llm).post("/v1/embeddings", {"input": ["a", "b"], "priority": 3, "cache_salt": "s"})
    assert llm.calls == [(2, 3, "s")]


def test_bytes_with_and_without_the_header(pooling, build):
    api = build(pooling())
    body = {"input": ["ab", "c"], "embed_dtype": "float16", "endianness": "big"}
    packed = api.post("/v1/embeddings", {**body, "encoding_format": "bytes"})
    metadata = json.loads(packed.headers["metadata"])
    assert packed.headers["content-type"] == "application/octet-stream"
    assert int(packed.headers["content-length"]) == len(packed.content) == 2 * SIZE * 2
    assert metadata["usage"]["prompt_tokens"] == 5
    item = metadata["data"][1]
    found = decode(packed.content[item["start"] : item["end"]], "float16", "big")
    assert found.tolist() == api.post("/v1/embeddings", {"input": "c"}).json()["data"][0]["embedding"]
    only = api.post("/v1/embeddings", {**body, "encoding_format": "bytes_only"})
    assert only.content == packed.content
    assert "metadata" not in only.headers


def test_the_header_is_ascii_whatever_the_model_is_called(pooling, build):
    answer = build(pooling(model_name="größe")).post("/v1/embeddings", {"input": "a", "encoding_format": "bytes"})
    assert (answer.status_code, json.loads(answer.headers["metadata"])["model"]) == (200, "größe")


def test_a_header_that_would_get_too_long_is_refused(pooling, build):
    api = build(pooling(), max_waiting=4096)
    body = {"input": ["a"] * 1000}
    refused = api.post("/v1/embeddings", {**body, "encoding_format": "bytes"})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "encoding_format"
    assert "bytes_only" in refused.json()["error"]["message"]
    assert len(api.post("/v1/embeddings", {**body, "encoding_format": "bytes_only"}).content) == 1000 * SIZE * 4


def test_classes(pooling, build):
    answer = build(pooling(CLASSES)).post("/classify", {"input": ["ab", "c"]}).json()
    assert [one["label"] for one in answer["data"]] == ["good", "good"]  # the second number is a byte's, so larger
    for one in answer["data"]:
        assert one["num_classes"] == 2
        assert sum(one["probs"]) == pytest.approx(1.0)
    raw = build(pooling(CLASSES)).post("/classify", {"input": "ab", "use_activation": False}).json()
    assert raw["data"][0]["probs"] == [3.0, 256.0]


def test_classes_of_tokens(pooling, build):
    answer = build(pooling(TOKENS)).post("/pooling", {"input": "ab"}).json()
    assert np.array(answer["data"][0]["data"]).shape == (3, 3)
    coded = build(pooling(TOKENS)).post("/pooling", {"input": "ab", "encoding_format": "bytes"})
    assert json.loads(coded.headers["metadata"])["data"][0]["shape"] == [3, 3]


def test_scores_of_pairs_and_their_order(pooling, build):
    api = build(pooling(SCORES))
    body = {"query": "q", "documents": ["long text", {"text": "a"}, "mid"], "use_activation": False}
    ranked = api.post("/rerank", body).json()["results"]
    assert [one["index"] for one in ranked] == [0, 2, 1]
    assert [one["document"]["text"] for one in ranked] == ["long text", "mid", "a"]
    assert [one["relevance_score"] for one in ranked] == [12.0, 6.0, 4.0]
    assert len(api.post("/rerank", {**body, "top_n": 2}).json()["results"]) == 2
    scored = api.post("/score", {"text_1": ["a", "bc"], "text_2": ["d", "ef"]}).json()
    assert len(scored["data"]) == 2
    assert all(0.5 < one["score"] <= 1 for one in scored["data"])


def test_a_text_that_is_too_long_is_named_for_its_side(pooling, build):
    api, long = build(pooling(EMBEDS)), "x" * 64
    for body, param in (
        ({"text_1": long, "text_2": "b"}, "text_1"),
        ({"text_1": "a", "text_2": ["b", long]}, "text_2"),
        ({"queries": [long], "documents": "b"}, "queries"),
    ):
        error = api.post("/score", body).json()["error"]
        assert error["param"] == param and f"your {param}" in error["message"]
    assert api.post("/rerank", {"query": long, "documents": ["b"]}).json()["error"]["param"] == "query"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/score", {}, "text_1"),
        ("/score", {"text_1": "a"}, "text_2"),
        ("/score", {"documents": ["a"]}, "queries"),
        ("/score", {"text_1": "a", "text_2": "b", "queries": "c"}, "queries"),
        ("/score", {"text_1": ["a", "b"], "text_2": ["c"]}, "text_2"),
        ("/score", {"text_1": ["a", "b"], "text_2": ["c", "d", "e"]}, "text_2"),
        ("/score", {"text_1": [], "text_2": ["c"]}, "text_1"),
        ("/rerank", {"query": "a"}, "documents"),
        ("/rerank", {"query": "a", "documents": []}, "documents"),
        ("/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n"),
        ("/rerank", {"query": "a", "documents": [{"image": "b"}]}, "documents[0]"),
        ("/v2/embed", {}, "texts"),
        ("/v2/embed", {"texts": ["a"], "embedding_types": ["int8"]}, "embedding_types[0]"),
        ("/v2/embed", {"texts": ["a"], "truncate": "START"}, "truncate"),
        ("/pooling", {"input": "a", "task": "sing"}, "task"),
    ],
)
def test_bodies_of_the_other_routes_are_checked(pooling, build, path, body, param):
    answer = build(pooling(EMBEDS if "embed" in path or "pooling" in path else SCORES)).post(path, body)
    assert answer.status_code == 400, answer.text
    found = answer.json()["error"]["param"]
    assert found == param or (found or "").startswith(param)


def test_an_answer_with_a_vector_for_every_token_is_bounded(pooling, build, monkeypatch):
    monkeypatch.setattr("core.server.pooled.MAX_NUMBERS", 10 * SIZE)
    api = build(pooling())
    assert api.post("/pooling", {"input": ["abcd", "efgh"], "task": "token_embed"}).status_code == 200
    refused = api.post("/pooling", {"input": ["abcd", "efghi"], "task": "token_embed"})
    assert refused.status_code == 400
    assert "11 tokens" in refused.json()["error"]["message"]
    assert api.post("/pooling", {"input": ["abcd", "efghi"], "task": "embed"}).status_code == 200


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize(
    ("shape", "path", "body"),
    [
        (EMBEDS, "/classify", {"input": "a"}),
        (EMBEDS, "/pooling", {"input": "a", "task": "token_classify"}),
        (CLASSES, "/v1/embeddings", {"input": "a"}),
        (CLASSES, "/score", {"text_1": "a", "text_2": "b"}),
        (CLASSES, "/v2/rerank", {"query": "a", "documents": ["b"]}),
        (CLASSES, "/v2/embed", {"texts": ["a"]}),
        (TOKENS, "/classify", {"input": "a"}),
        (SCORES, "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        (EMBEDS, "/v1/completions", {"prompt": "a"}),
        (None, "/v1/embeddings", {"input": "a"}),
        (None, "/rerank", {"query": "a", "documents": ["b"]}),
    ],
)
def test_routes_that_do_not_fit_the_model(pooling, fake, build, shape, path, body):
    answer = build(fake() if shape is None else pooling(shape)).post(path, body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("task_not_supported", "invalid_request_error")
    assert error["message"].startswith("model 'acme/tiny' ")


def test_engine_failures_become_statuses(pooling, build, engine_error):
    api = build(pooling(failure=engine_error))
    answer = api.post("/v1/embeddings", {"input": "a"})
    assert answer.status_code >= 500
    assert "0x7f00deadbeef" not in answer.text
    broken = RequestError("The request failed in the engine: x", code="engine_request_error", status=500)
    assert build(pooling(failure=broken)).post("/v1/embeddings", {"input": "a"}).status_code == 500


def test_too_many_texts_are_refused_before_any_work(pooling, build):
    llm = pooling()
    api = build(llm, max_waiting=4, max_num_seqs=4)
    refused = api.post("/v1/embeddings", {"input": ["a"] * 9})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "queue_full")
    assert llm.calls == []
    assert api.post("/v1/embeddings", {"input": ["a"] * 8}).status_code == 200
    assert api.app.state.core.pending == 0


def test_what_was_served_is_counted(pooling, build):
    api = build(pooling())
    api.post("/v1/embeddings", {"input": ["abc", "d"]})
    text = api.get("/metrics").text
    assert 'core_prompt_tokens_total{model_name="acme/tiny"} 6.0' in text
    assert 'core_prompt_tokens_cached_total{model_name="acme/tiny"} 2.0' in text
    assert 'core_request_success_total{finished_reason="stop",model_name="acme/tiny"} 2.0' in text


def test_a_client_that_goes_cancels_its_call(pooling, live, until):
    llm = pooling(hold_at=0)
    with live(llm) as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/embeddings", json={"input": "a"}, timeout=0.3, trust_env=False)
        until(lambda: llm.cancelled == 1)
        until(lambda: server.state.pending == 0)
        llm.held.set()
        assert httpx.post(f"{server.url}/v1/embeddings", json={"input": "a"}, trust_env=False).status_code == 200


def test_long_texts_are_tokenized_beside_other_work(pooling, build):
    llm = pooling()
    threads = []
    encode = llm.pooling.encode
    llm.pooling.encode = lambda *args, **kwargs: (threads.append(threading.current_thread()), encode(*args, **kwargs))[
        1
    ]
    api = build(llm)
    assert api.post("/v1/embeddings", {"input": "x" * 60_000, "truncate_prompt_tokens": -1}).status_code == 200
    assert api.post("/v1/embeddings", {"input": "x"}).status_code == 200
    assert [thread is threading.main_thread() for thread in threads] == [False, True]


def test_the_schema_tells_of_the_routes(pooling, build):
    paths = build(pooling()).get("/openapi.json").json()["paths"]
    for path in ("/v1/embeddings", "/v2/embed", "/pooling", "/classify", "/score", "/rerank", "/v2/rerank"):
        schema = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert "$ref" not in json.dumps(schema)
        assert schema["properties"]


def test_parameters_are_checked_whoever_asks():
    with pytest.raises(RequestError):
        PoolingParams(dimensions=-1)
    with pytest.raises(RequestError):
        PoolingParams(truncate_prompt_tokens="5")


# -- hostile clients ---------------------------------------------------------------------------------------------------

HOSTILE_ROUTES = {
    "/v1/embeddings": (EmbeddingBody, {"input": "ab"}),
    "/v2/embed": (CohereBody, {"texts": ["ab"]}),
    "/pooling": (PoolingBody, {"input": "ab"}),
    "/classify": (ClassifyBody, {"input": "ab"}),
    "/score": (ScoreBody, {"text_1": "a", "text_2": ["b", "c"]}),
    "/rerank": (RerankBody, {"query": "a", "documents": ["b", {"text": "c"}]}),
}
HOSTILE = [
    -1,
    0,
    10**12,
    10**30,
    0.5,
    True,
    "",
    "\u2603" * 3,
    "a\x00b",
    [],
    [[]],
    ["a"] * 2049,
    [-1],
    [10**12],
    [[0], [10**30]],
    [True],
    [None],
    [1.5],
    {},
    {"prompt": "a"},
    [{"text": None}],
    [{"role": "user", "content": {"a": [1]}}],
    [[[0]]],
]


@pytest.mark.covers("POOL-01")
@pytest.mark.parametrize("path", HOSTILE_ROUTES)
def test_every_field_with_every_kind_of_value(path, pooling, build):
    kind, body = HOSTILE_ROUTES[path]
    api = build(pooling(CLASSES if path == "/classify" else EMBEDS))
    for name in [*kind.model_fields, "never_heard_of"]:
        for value in HOSTILE:
            answer = api.post(path, {**body, name: value})
            where = f"{path} {name}={value!r:.60}: {answer.status_code} {answer.text[:200]}"
            assert answer.status_code < 500, where
            if answer.status_code != 200:
                error = answer.json()["error"]
                assert error["param"] or error["code"], where
                assert len(error["message"]) < 1100, where
    assert api.post(path, body).status_code == 200  # and it still serves


@pytest.mark.parametrize("path", HOSTILE_ROUTES)
@pytest.mark.parametrize("raw", [b'{"input": NaN}', b'{"input": "\\ud800"}', b'{"input": 1e999}', b"[]", b"{", b"\xff"])
def test_bodies_that_are_no_json(path, raw, pooling, build):
    answer = build(pooling()).post(path, content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 400


@pytest.mark.covers("POOL-02")
def test_late_interaction(pooling, build):
    """Vectors for each token: the route gives them, and scores compare them token by token."""
    api = build(pooling(PoolingShape(method="all", bidirectional=True)))
    tokens = [np.array(one["data"]) for one in api.post("/pooling", {"input": ["ab", "xyz", "b"]}).json()["data"]]
    assert [len(one) for one in tokens] == [3, 4, 2]
    expected = [float((tokens[0] @ one.T).max(axis=1).sum()) for one in tokens[1:]]
    scores = api.post("/score", {"queries": "ab", "documents": ["xyz", "b"]}).json()["data"]
    np.testing.assert_allclose([one["score"] for one in scores], expected, atol=1e-4)
    ranked = api.post("/rerank", {"query": "ab", "documents": ["xyz", "b"]}).json()["results"]
    assert [one["index"] for one in ranked] == sorted((0, 1), key=lambda index: -expected[index])
    refused = api.post("/v1/embeddings", {"input": "ab"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "task_not_supported")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": ["a", "b"]}),
        ("/pooling", {"input": "a"}),
        ("/score", {"text_1": "a", "text_2": "b"}),
        ("/rerank", {"query": "a", "documents": ["b"]}),
        ("/v2/embed", {"texts": ["a"], "input_type": "x", "embedding_types": ["float"]}),
    ],
)
def test_who_asks_is_told(path, body, pooling, build):
    llm = pooling()
    answer = build(llm, api_key="sk-x").post(path, {**body, "user": "ann"}, headers={"x-api-key": "sk-x"})
    assert answer.status_code == 200 and "x-core-ignored-fields" not in answer.headers
    assert llm.callers == [Caller("ann", key_id("sk-x"))]
