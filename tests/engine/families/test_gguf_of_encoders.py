"""A GGUF file of a tiny encoder gives the reference's vectors, and tokenizes as the reference does."""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from core import LLM, PoolingParams
from core_testing.families import TinyFamily

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


def unpooled(writer, tensors):
    return {name: value for name, value in tensors.items() if not name.startswith("pooler.")}


def form(way):
    def further(writer, config, prefix):
        writer.add_causal_attention(False)
        writer.add_pooling_type(way)
        if way is gguf.PoolingType.CLS:  # and a name that older converters have
            writer.add_uint32("tokenizer.ggml.cls_token_id", 2)

    return Form(gguf.MODEL_ARCH.BERT, further, gather=unpooled, vocabulary=words)


NOMIC = TinyFamily(
    "nomic",
    "NomicBertModel",
    {"model_type": "nomic_bert", "num_key_value_heads": None, "layer_norm_eps": 1e-6, "pad_token_id": 0},
)
MODERN = TinyFamily(
    "modern",
    "ModernBertModel",
    {"model_type": "modernbert", "num_hidden_layers": 4, "num_key_value_heads": None, "local_attention": 12},
)
JINA = TinyFamily(
    "jina",
    "JinaEmbeddingsV3Model",
    {"model_type": "jina_embeddings_v3", "num_key_value_heads": None, "layer_norm_eps": 1e-6, "pad_token_id": 0},
)
EURO = TinyFamily("euro", "EuroBertModel", {"model_type": "eurobert", "head_dim": 20})
EMBEDDING = TinyFamily(
    "embedding",
    "Gemma3TextModel",
    {
        "model_type": "gemma3_text",
        "num_hidden_layers": 7,
        "head_dim": 20,
        "query_pre_attn_scalar": 20,
        "sliding_window": 12,
        "use_bidirectional_attention": True,
    },
)


def nomic(writer, config, prefix):
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)


def modern(writer, config, prefix):
    nomic(writer, config, prefix)
    writer.add_sliding_window(config("local_attention"))
    writer.add_float32(f"{prefix}.rope.freq_base_swa", config.own.rope_parameters["sliding_attention"]["rope_theta"])


def euro(writer, config, prefix):
    nomic(writer, config, prefix)
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)


def embedding(writer, config, prefix):
    """The window as the configuration file has it: transformers halves it while it reads one."""
    nomic(writer, config, prefix)
    writer.add_sliding_window(12)


def raised(name, value, config):
    return [(name, value + 1 if name.endswith("norm.weight") else value)]


FURTHER = {
    "nomic": (NOMIC, Form(gguf.MODEL_ARCH.NOMIC_BERT, nomic, vocabulary=words, saved=True)),
    "modern": (MODERN, Form(gguf.MODEL_ARCH.MODERN_BERT, modern, vocabulary=words, saved=True)),
    "jina": (JINA, Form(gguf.MODEL_ARCH.JINA_BERT_V3, nomic, gather=unpooled, saved=True)),
    "euro": (EURO, Form(gguf.MODEL_ARCH.EUROBERT, euro)),
    "embedding": (EMBEDDING, Form(gguf.MODEL_ARCH.GEMMA_EMBEDDING, embedding, raised, saved=True)),
}


@pytest.mark.covers("QUANT-12", "POOL-02")
@pytest.mark.parametrize("name", FURTHER)
def test_vectors_of_further_encoders(name, tmp_path):
    row, form = FURTHER[name]
    model = row.model()
    write_gguf(tmp_path / "tiny.gguf", row, model, form)
    ids = [3 + (7 * i * i + 5 * i) % 360 for i in range(45)]
    options = {"dtype": "float32", "quantization": "cpu_dense,gguf", "threads": 1}
    with LLM(str(tmp_path / "tiny.gguf"), **options) as llm, torch.no_grad():
        due = model(torch.tensor([ids])).last_hidden_state[0]
        found = llm.encode([ids], RAW, pooling_task="token_embed")[0].outputs.data
        np.testing.assert_allclose(found, due, atol=1e-4 * due.abs().max().item())
        np.testing.assert_allclose(llm.embed([ids], RAW)[0].outputs.embedding, due.mean(0), atol=1e-3, rtol=1e-3)


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
