"""Embeddings from models that were made to generate, and what an engine that pools refuses."""

import numpy as np
import pytest
import torch

from core import LLM, PoolingParams
from core.api.errors import ConfigError, PluginError, RequestError
from core_testing.tinyencoders import sentence_files
from core_testing.tinymodels import reference_model, tiny_model

PROMPTS = ["the engine reads blocks of memory", "a worker", "the cache frees numbers, and then a scheduler plans"]


@pytest.fixture
def decoder(tmp_path):
    def make(family="llama"):
        return tiny_model(tmp_path / family, family), reference_model(family)

    return make


def last(reference, ids):
    with torch.no_grad():
        return reference.model(torch.tensor([ids])).last_hidden_state[0]


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral_window"])
@pytest.mark.parametrize("options", [{"runner": "pooling"}, {"convert": "embed"}])
def test_last_token_embeddings_equal_transformers(family, options, decoder, opened):
    directory, reference = decoder(family)
    for output in opened(directory, **options).embed(PROMPTS):
        expected = last(reference, output.prompt_token_ids)[-1]
        np.testing.assert_allclose(output.outputs.array, expected / expected.norm(), atol=1e-4)


def test_sentence_files_make_an_embedding_model_of_a_decoder(decoder, opened):
    directory, reference = decoder()
    sentence_files(directory, pooling="mean", normalize=False)
    llm = opened(directory)
    for output in llm.embed(PROMPTS):
        expected = last(reference, output.prompt_token_ids).mean(0)
        np.testing.assert_allclose(output.outputs.array, expected, atol=1e-3)
    with LLM(str(directory), dtype="float32", runner="generate") as generating:
        assert generating.generate(PROMPTS[0])[0].finished


def test_a_cached_prefix_changes_nothing_with_the_last_token(decoder, opened):
    directory, _ = decoder()
    llm = opened(directory, runner="pooling", block_size=16)
    ids = [3 + index % 300 for index in range(100)]
    first, second = llm.embed([ids])[0], llm.embed([ids])[0]
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 96)
    np.testing.assert_allclose(first.outputs.array, second.outputs.array, atol=1e-5)
    every = llm.encode([ids], pooling_task="token_embed")[0]
    assert every.num_cached_tokens == 0
    assert len(every.outputs.data) == 100


def test_a_prompt_longer_than_the_budget_runs_in_one_step(decoder, opened):
    directory, reference = decoder()
    llm = opened(directory, runner="pooling", pooling="mean", max_num_batched_tokens=32, max_chunk=16, max_num_seqs=2)
    prompts = [[5 + (7 * index + start) % 300 for index in range(length)] for start, length in enumerate((256, 90, 3))]
    outputs = llm.embed(prompts, PoolingParams(normalize=False))
    for ids, output in zip(prompts, outputs, strict=True):
        np.testing.assert_allclose(output.outputs.array, last(reference, ids).mean(0), atol=1e-3)
    llm.call("check")


def test_generating_engines_refuse_pooling_and_the_other_way_round(decoder, opened):
    directory, _ = decoder()
    generating = opened(directory)
    for call in (generating.embed, generating.classify, generating.encode):
        with pytest.raises(RequestError, match="generates text; started with --runner pooling") as refused:
            call("a")
        assert refused.value.code == "task_not_supported"
    pooling = opened(directory, runner="pooling")
    for call in (pooling.generate, lambda text: pooling.chat([{"role": "user", "content": text}])):
        with pytest.raises(RequestError, match="gives embeddings; it does not generate text"):
            call("a")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"runner": "pooling", "convert": "none"}, "CORE-C190"),
        ({"runner": "generate", "convert": "embed"}, "CORE-C190"),
        ({"pooling": "mean"}, "CORE-C191"),
    ],
)
def test_options_that_contradict_each_other(options, code, decoder):
    directory, _ = decoder()
    with pytest.raises(ConfigError) as refused:
        LLM(str(directory), **options)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("architecture", "options", "code"),
    [
        ("BertModel", {"runner": "generate"}, "CORE-C190"),
        ("BertForSequenceClassification", {"pooling": "mean"}, "CORE-C191"),
        ("BertForSequenceClassification", {"convert": "embed"}, "CORE-C191"),
    ],
)
def test_encoders_do_only_what_they_were_made_for(architecture, options, code, encoder):
    directory, _ = encoder(architecture)
    with pytest.raises(ConfigError) as refused:
        LLM(str(directory), **options)
    assert refused.value.code == code


def test_a_model_that_keeps_nothing_has_nothing_to_store(encoder):
    directory, _ = encoder()
    with pytest.raises(PluginError, match="the model keeps no keys and values"):
        LLM(str(directory), kv_connector=["cpu_offload"])


def test_an_engine_tells_which_kind_of_request_it_takes(encoder, opened):
    """What a front end of somebody else's might send."""
    from core.api.sampling_params import SamplingParams
    from core.engine.messages import Add, Outputs

    directory, _ = encoder()
    llm = opened(directory)
    engine = llm._running()
    engine.send(Add(handle=1, prompt=np.arange(3, dtype="<i4").tobytes(), params=SamplingParams()))
    ends = [end for message in engine.step() if isinstance(message, Outputs) for end in message.finished]
    assert [(end.handle, end.reason) for end in ends] == [(1, "error")]
    assert ends[0].error == "CORE-E191 this engine's task is 'pool'; the request's is 'generate'"


def test_a_vector_of_wrong_numbers_fails_its_call_and_nothing_else(encoder, opened, texts):
    directory, _ = encoder()
    llm = opened(directory)
    good = llm.embed(texts)
    runner = llm._engine._core.executor._worker._runner  # the worker of an engine in this process
    forward = runner._forward

    def poisoned(inputs):
        hidden = forward(inputs)
        starts = inputs.batch.query_starts
        hidden[starts[1] : starts[2]] = float("nan")
        return hidden

    runner._forward = poisoned
    with pytest.raises(RequestError, match="CORE-E121") as failed:
        llm.embed(texts)
    assert failed.value.status == 500
    runner._forward = forward
    for one, two in zip(good, llm.embed(texts), strict=True):
        np.testing.assert_allclose(one.outputs.array, two.outputs.array, atol=1e-6)
    llm.call("check")
