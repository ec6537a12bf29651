"""Ranks share the heads of latent attention; the latents are whole on each of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from core_plugin_deepseek.family import DeepSeek

from core_testing.conformance.tools.decoder import BLOCK_SIZE, Decoder, Track
from core_testing.conformance.tools.tiny_cases import TinyCase
from core_testing.families import TinyFamily
from core_testing.ranks import run_ranks

SUBJECT = SimpleNamespace(impl=lambda: DeepSeek, device="cpu")
PROMPT = [(7 * index * index + 3 * index + 11) % 300 for index in range(20)]
ROW = TinyFamily(
    "ranks",
    "DeepseekV3ForCausalLM",
    {
        "model_type": "deepseek_v3",
        "num_key_value_heads": 4,
        "kv_lora_rank": 24,
        "q_lora_rank": 28,
        "qk_nope_head_dim": 14,
        "qk_rope_head_dim": 12,
        "v_head_dim": 10,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 36,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
    },
)


@pytest.mark.parametrize("query", [28, None])
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_give_together_the_logits_of_one(size, query):
    case = TinyCase(ROW.name, ROW.architecture, ROW.model(q_lora_rank=query))

    def logits(decoder):
        track = Track()
        return torch.cat([decoder.run([(track, part)])[0] for part in (PROMPT[:9], PROMPT[9:])])

    def rank(ranks, all_reduce):
        decoder = Decoder(SUBJECT, case, ranks=ranks, all_reduce=all_reduce)
        shapes = {tuple(module.kv.shape[1:]) for module in decoder.attentions}
        return logits(decoder), shapes, {module.site.num_heads for module in decoder.attentions}

    due = logits(Decoder(SUBJECT, case))
    found = run_ranks(size, rank)
    torch.testing.assert_close(torch.cat([part for part, _, _ in found], dim=-1), due, atol=1e-3, rtol=1e-3)
    for _, shapes, heads in found:
        assert (shapes, heads) == ({(BLOCK_SIZE, 24 + 12)}, {4 // size})
