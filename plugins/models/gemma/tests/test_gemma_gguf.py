"""A GGUF file of a tiny random model, written with ggml's names and conventions, gives transformers' results."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from core import LLM, SamplingParams
from core.testing.tinymodels import reference_model

PROMPT = [3 + (7 * i * i + 5 * i) % 380 for i in range(21)]
COUNT = 12
FAMILIES = {"gemma2": gguf.MODEL_ARCH.GEMMA2, "gemma3_scaled": gguf.MODEL_ARCH.GEMMA3}
CHANGES = {"query_pre_attn_scalar": 32}
"""What a file means, which has no key for it: the size of a head."""


def write(path, model, kind):
    config = model.config
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[kind])
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_sliding_window(config.sliding_window)
    if config.attn_logit_softcapping:
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    ropes = config.rope_parameters
    full = ropes.get("full_attention", ropes)
    writer.add_rope_freq_base(full["rope_theta"])
    if "factor" in full:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(full["factor"])
        writer.add_float32("gemma3.rope.freq_base_swa", ropes["sliding_attention"]["rope_theta"])
        writer.add_uint32("gemma3.attention.sliding_window_pattern", 2)
    add_vocabulary(writer, config.vocab_size)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        if name == "lm_head.weight":  # the embedding once more
            continue
        offset = 1 if name.endswith("norm.weight") else 0
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), value.numpy().astype(np.float32) + offset)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer, size):
    """Bytes, and as many further tokens as there must be."""
    tokens = ["<unk>", "<bos>", "<eos>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += [f"word{number}" for number in range(size - len(tokens))]
    kinds = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * (size - 259)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * size)
    writer.add_token_types(kinds)


@pytest.mark.covers("MODEL-04", "QUANT-12")
@pytest.mark.parametrize("family", FAMILIES)
def test_probabilities_of_a_file_equal_transformers(family, tmp_path):
    model = reference_model(family, **CHANGES)
    write(tmp_path / "tiny.gguf", model, FAMILIES[family])
    params = SamplingParams(temperature=0.0, max_tokens=COUNT, ignore_eos=True, logprobs=5, prompt_logprobs=5)
    options = {"dtype": "float32", "quantization": "cpu_dense,gguf", "num_blocks": 20, "threads": 1}
    with LLM(str(tmp_path / "tiny.gguf"), **options) as llm:
        (answer,) = llm.generate([{"prompt_token_ids": PROMPT}], params)
    tokens = answer.outputs[0].token_ids
    with torch.no_grad():
        expected = model(torch.tensor([PROMPT + tokens])).logits[0, :-1].log_softmax(-1)
    assert expected[len(PROMPT) - 1 :].argmax(-1).tolist() == tokens
    found = [*answer.prompt_logprobs[1:], *answer.outputs[0].logprobs]
    assert len(found) == len(expected)
    for row, entries in zip(expected, found, strict=True):
        for token, entry in entries.items():
            assert entry.logprob == pytest.approx(float(row[token]), abs=1e-3)
