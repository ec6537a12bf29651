"""Embedders, rerankers and reward models of Llama's kind against transformers' decoders with their heads."""

from __future__ import annotations

import json
from contextlib import closing

import numpy as np
import pytest
import torch
from core_plugin_llama.config import read
from safetensors.torch import load_file, save_file
from torch import nn

from core import LLM, PoolingParams
from core.api import CheckpointError
from core_testing.tinyencoders import reference_encoder, tiny_encoder
from core_testing.tinymodels import reference_model, tiny_model

IDS = [5 + 3 * index % 300 for index in range(40)]
RAW = PoolingParams(normalize=False, use_activation=False)
CLOSE = 1e-4


def checkpoint(directory, family, architecture, head=None, **config):
    """Write a tiny decoder with another architecture's name, configuration and head; return its reference."""
    tiny_model(directory, family)
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": [architecture], **config}))
    if head is not None:
        stored = load_file(directory / "model.safetensors")
        kept = {name: tensor for name, tensor in stored.items() if not name.startswith("lm_head.")}
        save_file({**kept, **head}, directory / "model.safetensors", metadata={"format": "pt"})
    return reference_model(family)


def layer(*shape, seed=3):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.randn(shape)


def states(reference, *, both_ways):
    """Return the last hidden states, `(tokens, hidden)`; a mask of zeros hides nothing."""
    mask = {"attention_mask": torch.zeros(1, 1, len(IDS), len(IDS))} if both_ways else {}
    with torch.no_grad():
        return reference.model(torch.tensor([IDS]), **mask)[0][0]


def opened(directory, **options):
    return closing(LLM(str(directory), dtype="float32", threads=1, **options))


def near(found, due):
    np.testing.assert_allclose(found, due, atol=CLOSE * max(1.0, float(np.abs(due).max())))


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize(("pooling", "method"), [(None, "mean"), ("avg", "mean"), ("cls", "cls"), ("last", "last")])
def test_a_bidirectional_llama_embeds(pooling, method, tmp_path):
    named = {} if pooling is None else {"pooling": pooling}
    reference = checkpoint(tmp_path, "llama", "LlamaBidirectionalModel", {}, **named)
    hidden = states(reference, both_ways=True)
    due = {"mean": hidden.mean(0), "cls": hidden[0], "last": hidden[-1]}[method]
    with opened(tmp_path) as llm:
        near(llm.embed([IDS], RAW)[0].outputs.array, due.numpy())


@pytest.mark.covers("POOL-02")
def test_a_bidirectional_llama_scores_with_a_temperature(tmp_path):
    extra = {"pooling": "avg", "temperature": 0.5, "num_labels": 1}
    head = layer(1, reference_model("llama").config.hidden_size)
    architecture = "LlamaBidirectionalForSequenceClassification"
    reference = checkpoint(tmp_path, "llama", architecture, {"score.weight": head}, **extra)
    due = states(reference, both_ways=True).mean(0) @ head.T / 0.5
    with opened(tmp_path) as llm:
        near(llm.classify([IDS], RAW)[0].outputs.probs, due.numpy())


def join(directory, *, bare=False):
    """Put the projections of a checkpoint into `qkv_proj` and `gate_up_proj`; `bare`: names without `model.`."""
    stored, kept = load_file(directory / "model.safetensors"), {}
    for name in sorted(stored):
        for fused, parts in (("qkv_proj", ("q_proj", "k_proj", "v_proj")), ("gate_up_proj", ("gate_proj", "up_proj"))):
            if f".{parts[0]}." in name:
                each = [stored.pop(name.replace(parts[0], part)) for part in parts]
                kept[name.replace(parts[0], fused)] = torch.cat(each)
    named = {name.removeprefix("model.") if bare else name: one for name, one in (stored | kept).items()}
    assert not any(part in name for name in named for part in ("q_proj", ".up_proj"))
    save_file(named, directory / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.covers("POOL-02", "MODEL-12")
@pytest.mark.parametrize("fused", [False, True], ids=["split", "fused"])
@pytest.mark.parametrize("sizes", [{"num_labels": 24}, {"embedding_size": 24, "num_labels": 2}], ids=["labels", "size"])
def test_voyage_embeds_behind_a_linear_layer(sizes, fused, tmp_path):
    head = layer(24, reference_model("qwen3").config.hidden_size)
    architecture = "VoyageQwen3BidirectionalEmbedModel"
    reference = checkpoint(tmp_path, "qwen3", architecture, {"linear.weight": head}, is_matryoshka=True, **sizes)
    if fused:
        join(tmp_path, bare=True)
    due = states(reference, both_ways=True).mean(0) @ head.T
    unit = nn.functional.normalize(due, dim=0)
    with opened(tmp_path) as llm:
        near(llm.embed([IDS], RAW)[0].outputs.array, due.numpy())
        near(llm.embed([IDS])[0].outputs.array, unit.numpy())
        cut = llm.embed([IDS], PoolingParams(dimensions=8))[0].outputs.array
        near(cut, nn.functional.normalize(due[:8], dim=0).numpy())
        bare = llm.embed([IDS], PoolingParams(dimensions=8, normalize=False))[0].outputs.array
        near(bare, due[:8].numpy())
    with closing(LLM(str(tmp_path), dtype="bfloat16", threads=1)) as llm:
        found = torch.from_numpy(np.array(llm.embed([IDS])[0].outputs.array))
        assert torch.dot(found.float(), unit) > 0.999


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_projections_in_one_module_give_the_same_states(family, tmp_path):
    """Qwen2's have biases."""
    architecture = {"llama": "LlamaModel", "qwen2": "Qwen2Model"}[family]
    reference = checkpoint(tmp_path, family, architecture, {})
    join(tmp_path)
    with opened(tmp_path) as llm:
        near(llm.embed([IDS], RAW)[0].outputs.array, states(reference, both_ways=False)[-1].numpy())


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize("architecture", ["EuroBertModel", "EuroBertForMaskedLM"])
def test_eurobert_embeds_without_its_head(architecture, tmp_path):
    ids = dict.fromkeys(("bos_token_id", "eos_token_id"), 3)
    given = {"model_type": "eurobert", "num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True, **ids}
    tiny_encoder(tmp_path, architecture, **given)
    reference = reference_encoder(architecture, **given)
    encoder = getattr(reference, "model", reference)
    with torch.no_grad():
        due = encoder(torch.tensor([IDS])).last_hidden_state[0].mean(0)
    with opened(tmp_path) as llm:
        near(llm.embed([IDS], RAW)[0].outputs.array, due.numpy())


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize(("architecture", "count"), [("Qwen2ForRewardModel", 1), ("Qwen2ForProcessRewardModel", 2)])
def test_reward_models_have_two_layers(architecture, count, tmp_path):
    hidden = reference_model("qwen2").config.hidden_size
    first, second = layer(hidden, hidden) / 8, layer(count, hidden, seed=4)
    head = {"score.0.weight": first, "score.0.bias": layer(hidden, seed=5)}
    head |= {"score.2.weight": second, "score.2.bias": layer(count, seed=6)}
    reference = checkpoint(tmp_path, "qwen2", architecture, head)
    found = states(reference, both_ways=False)
    due = nn.functional.linear(nn.functional.linear(found, first, head["score.0.bias"]).relu(), second)
    due = due + head["score.2.bias"]
    with opened(tmp_path) as llm:
        if count == 1:
            near(llm.classify([IDS], RAW)[0].outputs.probs, due[-1].numpy())
        else:
            steps = llm.encode([IDS], pooling_task="token_classify")[0].outputs.data
            near(steps, due.softmax(-1).numpy())


RERANKER = {"architectures": ["Qwen3ForSequenceClassification"], "is_original_qwen3_reranker": True}


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("named", ["texts", "ids"])
def test_a_generating_model_scores_by_two_of_its_tokens(tied, named, tmp_path):
    tiny_model(tmp_path, "qwen3", tie_word_embeddings=tied)
    reference = reference_model("qwen3", tie_word_embeddings=tied)
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    texts = ["a", "e"]
    ids = [vocabulary[one] for one in texts]
    with torch.no_grad():
        logits = reference(torch.tensor([IDS])).logits[0, -1]
    changes = {**RERANKER, "classifier_from_token": texts if named == "texts" else ids}
    with opened(tmp_path, hf_overrides=changes) as llm:
        due = logits[ids[1]] - logits[ids[0]]
        near(llm.classify([IDS], RAW)[0].outputs.probs, due[None].numpy())
        near(llm.classify([IDS])[0].outputs.probs, due[None].sigmoid().numpy())


@pytest.mark.covers("POOL-02")
def test_each_token_may_be_a_class(tmp_path):
    tiny_model(tmp_path, "qwen3")
    with torch.no_grad():
        logits = reference_model("qwen3")(torch.tensor([IDS])).logits[0, -1]
    changes = {"architectures": ["Qwen3ForSequenceClassification"], "method": "no_post_processing"}
    with opened(tmp_path, hf_overrides={**changes, "classifier_from_token": [7, 9, 11]}) as llm:
        near(llm.classify([IDS], RAW)[0].outputs.probs, logits[[7, 9, 11]].numpy())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classifier_from_token": ["no such token", "a"]}, "no token 'no such token'"),
        ({"classifier_from_token": "yes"}, "must be a list"),
        ({"classifier_from_token": [1, 2, 3]}, "3 tokens"),
        ({"classifier_from_token": [1, 10**6]}, "beyond 'vocab_size'"),
        ({"classifier_from_token": [1, 2], "is_original_qwen3_reranker": False}, "needs 'method'"),
        ({"classifier_from_token": [1, 2], "method": "mean"}, "'method' is 'mean'"),
    ],
)
def test_tokens_that_make_no_classes_are_refused(changes, said, tmp_path):
    tiny_model(tmp_path, "qwen3")
    with pytest.raises(CheckpointError, match=said) as refused:
        LLM(str(tmp_path), hf_overrides={**RERANKER, **changes})
    assert refused.value.code == "CORE-M126"


def test_a_pooling_that_nobody_knows_is_refused():
    small = {"vocab_size": 10, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    with pytest.raises(CheckpointError, match="'pooling' is 'max'"):
        read({**small, "num_attention_heads": 2, "architectures": ["LlamaBidirectionalModel"], "pooling": "max"})
