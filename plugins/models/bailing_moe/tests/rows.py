"""Tiny checkpoints of this family."""

from __future__ import annotations

import torch
from torch import nn

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, renamed, sizes_of


class Gated(nn.Module):
    """An MLP with a gate."""

    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Gate(nn.Module):
    """What the experts of a token are, and their weights: by shares, or in groups by corrected sigmoids."""

    def __init__(self, config):
        super().__init__()
        self.config, experts = config, config["num_experts"]
        self.weight = nn.Parameter(torch.empty(experts, config["hidden_size"]))
        if config.get("moe_router_enable_expert_bias"):
            self.expert_bias = nn.Parameter(torch.empty(experts))

    def forward(self, x):
        logits, top_k = self.weight @ x, self.config["num_experts_per_tok"]
        if not self.config.get("moe_router_enable_expert_bias"):
            scores = logits.softmax(-1)
            ids = scores.topk(top_k).indices
        else:
            scores = logits.sigmoid()
            ids = self.grouped(scores + self.expert_bias, top_k)
        weights = scores[ids]
        if self.config.get("norm_topk_prob"):
            weights = weights / weights.sum()
        return ids.tolist(), weights * self.config.get("routed_scaling_factor", 1.0)

    def grouped(self, choice, top_k):
        groups = choice.view(self.config["n_group"], -1)
        best = groups.sort(descending=True).values[:, :2].sum(-1).topk(self.config["topk_group"]).indices
        allowed = torch.full_like(groups, -torch.inf)
        allowed[best] = groups[best]
        return allowed.flatten().topk(top_k).indices


class Mixture(nn.Module):
    """Experts of each token, and shared ones."""

    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
        self.gate = Gate(config)
        self.experts = nn.ModuleList(Gated(hidden, inner) for _ in range(config["num_experts"]))
        self.shared_experts = None
        if config["num_shared_experts"]:
            shared = config.get("moe_shared_expert_intermediate_size", inner)
            self.shared_experts = Gated(hidden, shared * config["num_shared_experts"])

    def forward(self, x):
        out = torch.zeros_like(x) if self.shared_experts is None else self.shared_experts(x)
        for token, row in enumerate(x):
            for expert, weight in zip(*self.gate(row), strict=True):
                out[token] += weight * self.experts[expert](row)
        return out


def reference(config):
    """Return the formula."""
    made = ReferenceDecoder(
        Reference(
            **sizes_of(config),
            qkv="joined",
            qkv_bias=config.get("use_qkv_bias", False),
            head_norm=config.get("use_qk_norm", False),
        )
    )
    for index, layer in enumerate(made.model.layers):
        layer.self_attn.rotated = lambda x: rotated(x, config)
        if index >= config.get("first_k_dense_replace", 0):
            layer.mlp = Mixture(config)
    return made


def rotated(x, config):
    """Rotate the first dimensions of each head."""
    size = config.get("rotary_dim") or int(x.shape[-1] * config.get("partial_rotary_factor", 1.0))
    frequencies = config.get("rope_theta", 10000.0) ** (-torch.arange(0, size, 2) / size)
    angles = torch.outer(torch.arange(len(x)), frequencies)[:, None]
    first, second, rest = x.split([size // 2, size // 2, x.shape[-1] - size], dim=-1)
    sine, cosine = angles.sin(), angles.cos()
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine, rest), dim=-1)


_SAVE = renamed(
    ("self_attn", "attention"),
    ("qkv_proj", "query_key_value"),
    ("o_proj", "dense"),
    ("q_norm", "query_layernorm"),
    ("k_norm", "key_layernorm"),
    ("embed_tokens", "word_embeddings"),
)
_FIRST = {
    "model_type": "bailing_moe",
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 36,
    "num_shared_experts": 2,
    "norm_topk_prob": True,
    "head_dim": 20,
}
_SECOND = {
    **_FIRST,
    "model_type": "bailing_moe_v2",
    "num_experts": 12,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    "score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "routed_scaling_factor": 2.5,
    "use_qk_norm": True,
    "use_rmsnorm": True,
    "partial_rotary_factor": 0.5,
    "first_k_dense_replace": 1,
    "head_dim": 24,
}

ROWS = [
    TinyFamily("bailing_moe", "BailingMoeForCausalLM", _FIRST, reference=reference, save=_SAVE),
    TinyFamily(
        "bailing_moe_mixed",
        "BailingMoeForCausalLM",
        _FIRST
        | {
            "first_k_dense_replace": 2,
            "num_shared_experts": 0,
            "norm_topk_prob": False,
            "num_experts_per_tok": 1,
            "use_qkv_bias": True,
            "rope_theta": 600000.0,
        },
        reference=reference,
        save=_SAVE,
    ),
    TinyFamily("bailing_moe_v2", "BailingMoeV2ForCausalLM", _SECOND, reference=reference, save=_SAVE),
    TinyFamily(
        "bailing_moe_v2_rotary",
        "BailingMoeV2ForCausalLM",
        _SECOND
        | {
            "rotary_dim": 8,
            "use_qk_norm": False,
            "moe_shared_expert_intermediate_size": 28,
            "first_k_dense_replace": 0,
            "n_group": 1,
            "topk_group": 1,
        },
        reference=reference,
        save=_SAVE,
    ),
]
