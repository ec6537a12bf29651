"""Tiny checkpoints of this family."""

from __future__ import annotations

import torch
from torch import nn

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, sizes_of


class Gated(nn.Module):
    """An MLP with a gate."""

    def __init__(self, hidden, inner):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.w2 = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Sparse(nn.Module):
    """Experts, weighed by their shares; of several, by their parts of the sum."""

    def __init__(self, config):
        super().__init__()
        self.top_k = config["num_experts_per_tok"]
        self.gate = nn.Linear(config["hidden_size"], config["num_local_experts"], bias=False)
        sizes = config["hidden_size"], config["intermediate_size"]
        self.experts = nn.ModuleList(Gated(*sizes) for _ in range(config["num_local_experts"]))

    def forward(self, x):
        out = torch.zeros_like(x)
        for token, row in enumerate(x):
            weights, ids = self.gate(row).softmax(-1).topk(self.top_k)
            if self.top_k > 1:
                weights = weights / weights.sum()
            for weight, expert in zip(weights, ids.tolist(), strict=True):
                out[token] += weight * self.experts[expert](row)
        return out


class Dense(nn.Module):
    """The MLP of a layer without experts."""

    def __init__(self, config):
        super().__init__()
        self.mlp = Gated(config["hidden_size"], config["intermediate_size"])

    def forward(self, x):
        return self.mlp(x)


class ArcticLayer(nn.Module):
    """A layer; where experts are beside the rest of it, they read what came in."""

    def __init__(self, config, attention, sparse):
        super().__init__()
        size = config["hidden_size"]
        self.around = sparse and config.get("use_residual", False)
        self.self_attn, self.block_sparse_moe = attention, (Sparse if sparse else Dense)(config)
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(size, eps=1e-6) for _ in range(2))
        if self.around:
            self.residual_layernorm, self.residual_mlp = nn.RMSNorm(size, eps=1e-6), Gated(size, size)

    def forward(self, x):
        attended = x + self.self_attn(self.input_layernorm(x))
        if not self.around:
            return attended + self.block_sparse_moe(self.post_attention_layernorm(attended))
        dense = attended + self.residual_mlp(self.residual_layernorm(attended))
        return dense + self.block_sparse_moe(self.post_attention_layernorm(x))


def reference(config):
    """Return the formula."""
    made, every = ReferenceDecoder(Reference(**sizes_of(config))), config["moe_layer_frequency"]
    for index, layer in enumerate(made.model.layers):
        made.model.layers[index] = ArcticLayer(config, layer.self_attn, (index + 1) % every == 0)
    return made


_ARCTIC = {
    "model_type": "arctic",
    "num_local_experts": 7,
    "num_experts_per_tok": 2,
    "moe_layer_frequency": 1,
    "use_residual": True,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "head_dim": 20,
}

ROWS = [
    TinyFamily("arctic", "ArcticForCausalLM", _ARCTIC, reference=reference),
    TinyFamily(
        "arctic_mixed",
        "ArcticForCausalLM",
        _ARCTIC | {"moe_layer_frequency": 2, "num_experts_per_tok": 1, "num_hidden_layers": 4},
        reference=reference,
    ),
    TinyFamily(
        "arctic_serial", "ArcticForCausalLM", _ARCTIC | {"use_residual": False, "head_dim": 24}, reference=reference
    ),
]
