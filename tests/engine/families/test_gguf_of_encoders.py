"""A GGUF file of a tiny encoder gives the reference's vectors, and tokenizes as the reference does."""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from core import LLM, PoolingParams
from core.testing.families import TinyFamily

sys.path.insert(0, str(Path(__file__).parent))
from ggufs import Form, write_gguf

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "token", "##s", "read", "##er", "i", "'", "m", "世", "u"]
TEXTS = ["The tokens, reader", "I'm 世 xyz", "Ü", ""]
RAW = PoolingParams(normalize=False)
WAYS = {gguf.PoolingType.MEAN: lambda states: states.mean(0), gguf.PoolingType.CLS: lambda states: states[0]}
BERT = TinyFamily("bert", "BertModel", {"model_type": "bert", "num_key_value_heads": None, "layer_norm_eps": 1e-6})


def words(writer, size):
    """The list of words as converters write it: what begins one is marked."""
    special = [f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")]
    tokens = [*WORDS, *(f"word{number}" for number in range(size - len(WORDS)))]
    marked = [one if one in special else one[2:] if one.startswith("##") else f"\u2581{one}" for one in tokens]
    writer.add_tokenizer_model("bert")
    writer.add_token_list(marked)
    writer.add_token_types([3] * len(special) + [1] * (size - len(special)))
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)


def form(way):
    def further(writer, config, prefix):
        writer.add_causal_attention(False)
        writer.add_pooling_type(way)
        if way is gguf.PoolingType.CLS:  # and a name that older converters have
            writer.add_uint32("tokenizer.ggml.cls_token_id", 2)

    def unpooled(writer, tensors):
        return {name: value for name, value in tensors.items() if not name.startswith("pooler.")}

    return Form(gguf.MODEL_ARCH.BERT, further, gather=unpooled, vocabulary=words)


@pytest.mark.covers("QUANT-12", "POOL-02")
@pytest.mark.parametrize("way", WAYS)
def test_vectors_and_tokens_of_bert(way, tmp_path):
    import transformers

    model = BERT.model()
    write_gguf(tmp_path / "tiny.gguf", BERT, model, form(way))
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    tokenizer = transformers.BertTokenizer.from_pretrained(tmp_path)
    ids = [tokenizer(text).input_ids for text in TEXTS] + [[2, *range(5, 40), 3]]
    options = {"dtype": "float32", "quantization": "cpu_dense,gguf", "threads": 1}
    with LLM(str(tmp_path / "tiny.gguf"), **options) as llm, torch.no_grad():
        answers = [*llm.embed(TEXTS, RAW), *llm.embed(ids[-1:], RAW)]
        assert [answer.prompt_token_ids for answer in answers] == ids
        for given, answer in zip(ids, answers, strict=True):
            due = WAYS[way](model(torch.tensor([given])).last_hidden_state[0])
            np.testing.assert_allclose(answer.outputs.embedding, due, atol=1e-3, rtol=1e-3)
