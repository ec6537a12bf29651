"""Encoders of every family against transformers, through the whole engine."""

import json

import numpy as np
import pytest
import torch
from core_plugin_cpu import graphs
from core_plugin_cpu.native import library

from core import PoolingParams
from core_testing.tinyencoders import ENCODERS, sentence_files

TOLERANCE = 1e-4


def close(found, expected, tolerance=TOLERANCE):
    expected = np.asarray(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1.0, float(np.abs(expected).max())))


@pytest.mark.covers("POOL-01")
@pytest.mark.parametrize("family", ENCODERS)
def test_mean_pooled_embeddings_equal_transformers(family, encoder, opened, hidden, texts):
    directory, reference = encoder(f"{family}Model")
    llm = opened(directory)
    outputs = llm.embed(texts, PoolingParams(normalize=False))
    assert len({len(output.prompt_token_ids) for output in outputs}) > 3
    for output in outputs:
        close(output.outputs.array, hidden(reference, output.prompt_token_ids).mean(0))


@pytest.mark.parametrize("family", ENCODERS)
def test_classes_equal_transformers(family, encoder, opened, texts):
    directory, reference = encoder(f"{family}ForSequenceClassification", num_labels=3)
    llm = opened(directory)
    raw = llm.classify(texts, PoolingParams(use_activation=False))
    probable = llm.classify(texts)
    for numbers, output in zip(raw, probable, strict=True):
        with torch.no_grad():
            logits = reference(torch.tensor([output.prompt_token_ids])).logits[0]
        close(numbers.outputs.probs, logits)
        close(output.outputs.probs, logits.softmax(-1))
        assert output.outputs.label == f"LABEL_{int(logits.argmax())}"
        assert output.outputs.num_classes == 3


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize("family", ENCODERS)
def test_token_classes_equal_transformers(family, encoder, opened, texts):
    directory, reference = encoder(f"{family}ForTokenClassification", num_labels=5)
    llm = opened(directory)
    for output in llm.encode(texts, PoolingParams(use_activation=False), pooling_task="token_classify"):
        with torch.no_grad():
            logits = reference(torch.tensor([output.prompt_token_ids])).logits[0]
        assert output.outputs.data.shape == (len(output.prompt_token_ids), 5)
        close(output.outputs.data, logits)


@pytest.mark.skipif(not library.available(), reason="no native library")
@pytest.mark.parametrize(("family", "kind"), [("Roberta", "ProgramGraph"), ("MPNet", "EagerGraph")])
def test_steps_are_programs_but_for_biases_by_position(family, kind, encoder, opened, texts, monkeypatch):
    kinds, capture = set(), graphs.ProgramGraphs.capture

    def watched(self, forward, step):
        made = capture(self, forward, step)
        kinds.add(type(made).__name__)
        return made

    monkeypatch.setattr(graphs.ProgramGraphs, "capture", watched)
    directory, _ = encoder(f"{family}Model")
    opened(directory).embed(texts)
    assert kinds == {kind}


@pytest.mark.parametrize("method", ["mean", "cls", "last"])
def test_pooling_methods(method, encoder, opened, hidden, texts):
    directory, reference = encoder()
    llm = opened(directory, pooling=method)
    for output in llm.embed(texts):
        states = hidden(reference, output.prompt_token_ids)
        expected = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[method]
        close(output.outputs.array, expected / expected.norm())


def test_every_token_can_be_had_beside_whole_prompts(encoder, opened, hidden, texts):
    directory, reference = encoder()
    llm = opened(directory)
    for output in llm.encode(texts, PoolingParams(normalize=False), pooling_task="token_embed"):
        close(output.outputs.data, hidden(reference, output.prompt_token_ids))


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", False), ("lasttoken", True)])
def test_sentence_files_say_how_to_pool(pooling, normalize, encoder, opened, hidden, texts):
    directory, reference = encoder()
    sentence_files(directory, pooling=pooling, normalize=normalize, length=40)
    llm = opened(directory)
    assert llm.config.max_model_len == 40
    for output in llm.embed(texts):
        states = hidden(reference, output.prompt_token_ids)
        expected = {"mean": states.mean(0), "cls": states[0], "lasttoken": states[-1]}[pooling]
        close(output.outputs.array, expected / expected.norm() if normalize else expected)


def test_a_batch_of_mixed_lengths_equals_each_alone(encoder, opened):
    directory, _ = encoder()
    llm = opened(directory)
    random = np.random.default_rng(3)
    prompts = [random.integers(5, 300, size=length).tolist() for length in random.integers(1, 97, size=64)]
    together = llm.embed(prompts)
    steps = llm.call("stats")["steps"]
    assert steps <= 3  # 64 prompts of about 48 tokens in steps of 2048
    for prompt, output in zip(prompts, together, strict=True):
        close(llm.embed([prompt])[0].outputs.array, output.outputs.array, 1e-5)


@pytest.mark.parametrize("family", ["Bert", "Roberta"])
def test_prompts_up_to_the_limit(family, encoder, opened, hidden):
    directory, reference = encoder(f"{family}Model", pad_token_id=1)
    llm = opened(directory)
    longest = 96 if family == "Bert" else 94  # RoBERTa's positions begin behind the padding id
    assert llm.config.max_model_len == longest
    ids = [7 + index % 200 for index in range(longest)]
    output = llm.embed([ids], PoolingParams(normalize=False))[0]
    close(output.outputs.array, hidden(reference, ids).mean(0))


def test_the_local_window_is_transformers_own(encoder, opened, hidden):
    """A prompt much longer than the window, whose far tokens matter only through the global layers."""
    directory, reference = encoder("ModernBertModel")
    assert set(reference.config.layer_types) == {"full_attention", "sliding_attention"}
    ids = [5 + 3 * index % 300 for index in range(80)]
    output = opened(directory).encode([ids], PoolingParams(normalize=False), pooling_task="token_embed")[0]
    close(output.outputs.data, hidden(reference, ids))


@pytest.mark.parametrize("family", ENCODERS)
@pytest.mark.parametrize("named", ["ForMaskedLM", "Model"])
def test_a_head_that_nothing_reads_is_left_out(family, named, encoder, opened, hidden, texts):
    """A checkpoint of a whole masked-language model serves as an encoder, prefix and all."""
    directory, reference = encoder(f"{family}ForMaskedLM")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "architectures": [family + named]}))
    output = opened(directory).embed(texts[0], PoolingParams(normalize=False))[0]
    close(output.outputs.array, hidden(reference, output.prompt_token_ids).mean(0))


def test_bfloat16_is_near(encoder, texts):
    from core import LLM

    directory, _ = encoder()
    with LLM(str(directory), dtype="float32", threads=1) as exact, LLM(str(directory), dtype="bfloat16") as rounded:
        for one, two in zip(exact.embed(texts), rounded.embed(texts), strict=True):
            assert float(one.outputs.array @ two.outputs.array) > 0.999
