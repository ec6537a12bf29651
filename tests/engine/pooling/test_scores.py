"""Pairs of texts: cross-encoders against transformers, embedding models by cosine."""

import json

import numpy as np
import pytest
import torch

from core import PoolingParams
from core.api.errors import RequestError

QUERY = "the engine reads long prompts"


def pair_logits(reference, directory, query, document, limit=None):
    """What transformers gives for a pair, tokenized by its own tokenizer."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    cut = {} if limit is None else {"truncation": "longest_first", "max_length": limit}
    # Whether there are types of tokens is the model's affair, which the tokenizer's class does not know.
    inputs = tokenizer(query, document, return_tensors="pt", return_token_type_ids=True, **cut)
    if getattr(reference.config, "type_vocab_size", 0) != 2:
        inputs.pop("token_type_ids")
    with torch.no_grad():
        return inputs["input_ids"][0].tolist(), reference(**inputs).logits[0]


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize("family", ["Bert", "Roberta", "DistilBert", "ModernBert"])
def test_cross_encoders_score_pairs_as_transformers(family, encoder, opened, texts):
    directory, reference = encoder(f"{family}ForSequenceClassification", num_labels=1)
    llm = opened(directory)
    raw = llm.score(QUERY, texts, PoolingParams(use_activation=False))
    squashed = llm.score([QUERY] * len(texts), texts)
    for document, one, two in zip(texts, raw, squashed, strict=True):
        ids, logits = pair_logits(reference, directory, QUERY, document)
        assert one.prompt_token_ids == ids
        assert one.outputs.score == pytest.approx(float(logits), abs=1e-4)
        assert two.outputs.score == pytest.approx(float(logits.sigmoid()), abs=1e-5)


def test_the_second_text_is_of_its_own_type(encoder, opened):
    directory, _ = encoder("BertForSequenceClassification", num_labels=1)
    llm = opened(directory)
    score = llm.score("a worker", "the cache", PoolingParams(use_activation=False))[0]
    untyped = llm.classify([score.prompt_token_ids], PoolingParams(use_activation=False))[0]
    assert score.outputs.score != pytest.approx(untyped.outputs.probs[0], abs=1e-3)


def test_long_pairs_are_cut_like_transformers(encoder, opened):
    directory, reference = encoder("BertForSequenceClassification", num_labels=1)
    llm = opened(directory)
    document = "the cache plans the next step and " * 8
    with pytest.raises(RequestError, match="96 tokens") as refused:
        llm.score(QUERY, document * 4)
    assert refused.value.code == "context_length_exceeded"
    for limit in (9, 20, 33, 96):
        cut = PoolingParams(truncate_prompt_tokens=limit, use_activation=False)
        for query, text in ((QUERY, document * 3), (document * 2, QUERY), (document, document * 3)):
            found = llm.score(query, text, cut)[0]
            ids, logits = pair_logits(reference, directory, query, text, limit)
            assert sorted(found.prompt_token_ids) == sorted(ids) or len(ids) == len(found.prompt_token_ids) == limit
            if found.prompt_token_ids == ids:
                assert found.outputs.score == pytest.approx(float(logits), abs=1e-4)


def test_embedding_models_compare_by_cosine(encoder, opened, texts):
    directory, _ = encoder()
    llm = opened(directory)
    scores = [one.outputs.score for one in llm.score(QUERY, texts)]
    query, *documents = [one.outputs.array for one in llm.embed([QUERY, *texts])]
    np.testing.assert_allclose(scores, [query @ document for document in documents], atol=1e-6)
    pairs = [one.outputs.score for one in llm.score(texts, texts)]
    np.testing.assert_allclose(pairs, 1.0, atol=1e-5)


def test_makers_of_a_cross_encoder_may_want_no_activation(encoder, opened):
    directory, _ = encoder("BertForSequenceClassification", num_labels=1)
    config = json.loads((directory / "config.json").read_text())
    config["sentence_transformers"] = {"activation_fn": "torch.nn.modules.linear.Identity"}
    (directory / "config.json").write_text(json.dumps(config))
    llm = opened(directory)
    raw = llm.score(QUERY, "a worker", PoolingParams(use_activation=False))[0].outputs.score
    assert llm.score(QUERY, "a worker")[0].outputs.score == raw


@pytest.mark.parametrize(
    ("queries", "documents", "said"),
    [(["a", "b"], ["c"], "2 queries"), ([], ["c"], "0 queries"), (["a"], [], "0 documents")],
)
def test_sides_that_do_not_go_together(queries, documents, said, encoder, opened):
    directory, _ = encoder()
    with pytest.raises(RequestError, match=said):
        opened(directory).score(queries, documents)


def test_several_labels_are_no_score(encoder, opened):
    directory, _ = encoder("BertForSequenceClassification", num_labels=3)
    llm = opened(directory)
    with pytest.raises(RequestError, match="this one has 3"):
        llm.score("a", "b")
    with pytest.raises(RequestError, match="cannot embed: it can classify"):
        llm.embed("a")
