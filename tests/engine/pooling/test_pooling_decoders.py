"""Decoders that were made to pool: without an output projection, with a head, or with attention both ways."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from core import PoolingParams
from core.api.errors import CheckpointError, PluginError
from core_testing.tinyencoders import sentence_files
from core_testing.tinymodels import reference_model, tiny_model, tiny_tokenizer

PROMPTS = ["the engine reads blocks of memory", "a worker", "the cache frees numbers, and then a scheduler plans"]
RAW = PoolingParams(normalize=False, use_activation=False)


def configure(directory, **changes):
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **changes}))
    return directory


def both_ways(reference, ids):
    """transformers' states with every token seeing every other: a mask of zeros hides nothing."""
    with torch.no_grad():
        return reference.model(torch.tensor([ids]), attention_mask=torch.zeros(1, 1, len(ids), len(ids)))[0][0]


@pytest.mark.covers("ATTN-07")
@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_attention_both_ways_from_the_configuration(family, tmp_path, opened):
    directory = configure(tiny_model(tmp_path / family, family), is_causal=False)
    reference, llm = reference_model(family), opened(directory)
    ids = [5 + 3 * index % 300 for index in range(40)]
    for one in (ids, [*ids[:-1], 9]):
        found = llm.encode([one], RAW, pooling_task="token_embed")[0].outputs.data
        np.testing.assert_allclose(found, both_ways(reference, one), atol=1e-4 * np.abs(found).max())
    first, other = llm.encode([ids, [*ids[:-1], 9]], RAW, pooling_task="token_embed")
    assert np.abs(first.outputs.data[0] - other.outputs.data[0]).max() > 1e-3  # the last token reaches the first
    for output in llm.embed(PROMPTS):
        mean = both_ways(reference, output.prompt_token_ids).mean(0)
        np.testing.assert_allclose(output.outputs.array, mean / mean.norm(), atol=1e-4)
    # No layer keeps anything: there is nothing to write, to group, to find again, or for a connector to move.
    worker = llm._engine._core.executor._worker  # the worker of an engine in this process
    assert worker._loaded.attentions == [] and llm.embed([ids])[0].num_cached_tokens == 0
    with pytest.raises(PluginError, match="keeps no keys and values"):
        opened(directory, kv_connector=["cpu_offload"])


def test_a_causal_decoder_shows_nothing_to_the_first_token(tmp_path, opened):
    llm = opened(tiny_model(tmp_path / "qwen3", "qwen3"), runner="pooling")
    ids = [5 + 3 * index % 300 for index in range(40)]
    first, other = llm.encode([ids, [*ids[:-1], 9]], RAW, pooling_task="token_embed")
    np.testing.assert_allclose(first.outputs.data[:-1], other.outputs.data[:-1], atol=1e-4)


def test_a_window_both_ways_is_refused(tmp_path, opened):
    directory = configure(tiny_model(tmp_path / "window", "mistral_window"), is_causal=False)
    with pytest.raises(CheckpointError, match="CORE-M126"):
        opened(directory)


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_a_checkpoint_without_an_output_projection_embeds(family, tmp_path, opened):
    """As Qwen3-Embedding and E5-Mistral are published: names without a prefix, and no `lm_head`."""
    reference = reference_model(family)
    reference.model.save_pretrained(tmp_path / family)
    tiny_tokenizer(tmp_path / family)
    assert json.loads((tmp_path / family / "config.json").read_text())["architectures"][0].endswith("Model")
    for output in opened(tmp_path / family).embed(PROMPTS):
        with torch.no_grad():
            last = reference.model(torch.tensor([output.prompt_token_ids]))[0][0, -1]
        np.testing.assert_allclose(output.outputs.array, last / last.norm(), atol=1e-4)


def test_names_without_a_prefix_do_for_a_whole_model_with_tied_embeddings(tmp_path, opened):
    reference = reference_model("qwen3")
    reference.model.save_pretrained(tmp_path / "qwen3")
    tiny_tokenizer(tmp_path / "qwen3")
    configure(tmp_path / "qwen3", architectures=["Qwen3ForCausalLM"])
    sentence_files(tmp_path / "qwen3", pooling="lasttoken")
    output = opened(tmp_path / "qwen3").embed(PROMPTS[0])[0]
    with torch.no_grad():
        last = reference.model(torch.tensor([output.prompt_token_ids]))[0][0, -1]
    np.testing.assert_allclose(output.outputs.array, last / last.norm(), atol=1e-4)


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize(("family", "count"), [("qwen3", 1), ("llama", 3)])
def test_a_head_on_the_last_token(family, count, tmp_path, opened):
    import transformers

    plain = reference_model(family)
    config = type(plain.config)(**{**plain.config.to_dict(), "num_labels": count})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        reference = transformers.AutoModelForSequenceClassification.from_config(config).to(torch.float32).train(False)
    reference.model.load_state_dict(plain.model.state_dict())
    reference.save_pretrained(tmp_path / family)
    tiny_tokenizer(tmp_path / family)
    llm = opened(tmp_path / family)
    for raw, probable in zip(llm.classify(PROMPTS, RAW), llm.classify(PROMPTS), strict=True):
        with torch.no_grad():
            logits = reference(torch.tensor([raw.prompt_token_ids])).logits[0]
        np.testing.assert_allclose(raw.outputs.probs, logits, atol=1e-4)
        expected = logits.sigmoid() if count == 1 else logits.softmax(-1)
        np.testing.assert_allclose(probable.outputs.probs, expected, atol=1e-4)
    if count == 1:
        score = llm.score("the engine", "a worker", RAW)[0]
        with torch.no_grad():
            logits = reference(torch.tensor([score.prompt_token_ids])).logits[0]
        assert score.outputs.score == pytest.approx(float(logits), abs=1e-4)
