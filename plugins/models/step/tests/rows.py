"""Tiny checkpoints of this family."""

from __future__ import annotations

import torch

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, sizes_of


def attend(self, x):
    """Return what attention gives, `(tokens, hidden)`: scores fall with the root of the distance."""
    given, places = self.given, torch.arange(len(x))
    q, k, v = self.projected(x)
    k, v = (one.repeat_interleave(given.heads // given.kv_heads, dim=1) for one in (k, v))
    back = places[:, None] - places[None, :]
    scores = torch.einsum("qhd,khd->hqk", q, k) * given.head_dim**-0.5
    scores = scores - torch.tensor(given.slopes)[:, None, None] * back.clamp(min=0).sqrt()
    return self.o_proj(torch.einsum("hqk,khd->qhd", scores.masked_fill(back < 0, -torch.inf).softmax(-1), v).flatten(1))


def step1(config):
    """Return the published formula."""
    bias, heads = config.get("attention_bias", False), config["num_attention_heads"]
    slopes = {4: [2**-2, 2**-4, 2**-6, 2**-8], 5: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1]}[heads]
    sizes = sizes_of(config) | {"kv_heads": config["num_attention_groups"], "theta": None}
    tied, mlp = config.get("tie_word_embeddings", True), config.get("mlp_bias", False)
    decoder = ReferenceDecoder(
        Reference(**sizes, slopes=slopes, tied=tied, qkv_bias=bias, output_bias=bias, mlp_bias=mlp, down_bias=mlp)
    )
    for layer in decoder.model.layers:
        attention = layer.self_attn
        attention.forward = attend.__get__(attention)
    return decoder


_USUAL = {"model_type": "step1", "num_key_value_heads": None, "rms_norm_eps": 1e-5, "max_seq_len": 999999}

ROWS = [
    TinyFamily(
        "step1",
        "Step1ForCausalLM",
        {**_USUAL, "num_attention_groups": 2, "tie_word_embeddings": False},
        reference=step1,
        native={"hidden_size": 128},
    ),
    TinyFamily(
        "step1_bias",
        "Step1ForCausalLM",
        {**_USUAL, "num_attention_heads": 5, "num_attention_groups": 1, "attention_bias": True, "mlp_bias": True},
        reference=step1,
        native={"hidden_size": 160},
        spread=0.1,
    ),
]
