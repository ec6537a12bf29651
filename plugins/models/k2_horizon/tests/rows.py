"""Tiny checkpoints of this family, and the published formula in torch."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, sizes_of


class Grouped(nn.Module):
    """An RMS norm of each of several parts, with one weight for all of them."""

    def __init__(self, size, groups, eps):
        super().__init__()
        self.weight, self.groups, self.eps = nn.Parameter(torch.ones(size)), groups, eps

    def forward(self, x):
        parts = x.unflatten(-1, (self.groups, -1))
        return self.weight * (parts * (parts.square().mean(-1, keepdim=True) + self.eps).rsqrt()).flatten(-2)


class Attention(nn.Module):
    """The reference's attention, with what this family has around it."""

    def __init__(self, given, config):
        super().__init__()
        bias = config.get("attention_bias", False)
        queries, keys = given.heads * given.head_dim, given.kv_heads * given.head_dim
        self.given, self.window = given, config["sliding_window"] if config.get("use_sliding_window") else None
        for name, size in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            setattr(self, name, nn.Linear(given.hidden, size, bias=bias))
        self.o_proj = nn.Linear(queries, given.hidden, bias=bias)
        self.rotated = config.get("rope_head_dim") or given.head_dim
        if config["query_key_norm"]:
            self.q_norm = Grouped(queries, given.heads, given.eps)
            self.k_norm = Grouped(keys, given.kv_heads, given.eps)
        self.function = config.get("attention_gate_func")
        if self.function:
            self.gate_proj = nn.Linear(given.hidden, queries, bias=False)

    def forward(self, x):
        given, places = self.given, torch.arange(len(x))
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x).unflatten(-1, (-1, given.head_dim))
        if hasattr(self, "q_norm"):
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = (self.turned(one.unflatten(-1, (-1, given.head_dim))) for one in (q, k))
        k, v = (one.repeat_interleave(given.heads // given.kv_heads, dim=1) for one in (k, v))
        back = places[:, None] - places[None]
        hidden = (back < 0) if self.window is None else (back < 0) | (back >= self.window)
        scores = torch.einsum("qhd,khd->hqk", q, k) * given.head_dim**-0.5
        out = torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v).flatten(1)
        if self.function == "silu":
            out = out * functional.silu(self.gate_proj(x))
        elif self.function:
            out = out * torch.log2(1 + torch.exp2(self.gate_proj(x)))
        return self.o_proj(out)

    def turned(self, x):
        """Rotate the first pairs of the two halves of each head; the others stay."""
        half = self.rotated // 2
        frequencies = self.given.theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = torch.outer(torch.arange(len(x), dtype=torch.float32), frequencies)[:, None]
        first, second = x.chunk(2, dim=-1)
        one, other = first[..., :half], second[..., :half]
        turned = one * angles.cos() - other * angles.sin(), other * angles.cos() + one * angles.sin()
        return torch.cat((turned[0], first[..., half:], turned[1], second[..., half:]), dim=-1)


def reference(config):
    """Return the published formula."""
    given = Reference(**sizes_of(config), tied=config.get("tie_word_embeddings", False))
    made = ReferenceDecoder(given)

    def norm():
        return Grouped(given.hidden, config["layernorm_num_groups"], given.eps)

    made.model.norm = norm()
    for layer in made.model.layers:
        layer.self_attn = Attention(given, config)
        layer.input_layernorm, layer.post_attention_layernorm = norm(), norm()
    return made


_DENSE = {"model_type": "k2_horizon", "num_experts": 0, "mova_num_experts": 0, "rope_theta": 5000.0}

ROWS = [
    TinyFamily(
        "k2_horizon",
        "K2HorizonForCausalLM",
        {**_DENSE, "head_dim": 20, "layernorm_num_groups": 4, "query_key_norm": False},
        reference=reference,
    ),
    TinyFamily(
        "k2_horizon_gates",
        "K2HorizonForCausalLM",
        {
            **_DENSE,
            "head_dim": 20,
            "layernorm_num_groups": 2,
            "query_key_norm": True,
            "attention_gate_func": "softplus",
            "rope_head_dim": 12,
            "num_experts": 4,
            "mlp_only_layers": [0, 1, 2],
            "attention_bias": True,
        },
        reference=reference,
    ),
    TinyFamily(
        "k2_horizon_windows",
        "K2HorizonForCausalLM",
        {
            **_DENSE,
            "layernorm_num_groups": 1,
            "query_key_norm": True,
            "attention_gate_func": "silu",
            "use_sliding_window": True,
            "sliding_window": 6,
            "tie_word_embeddings": True,
        },
        reference=reference,
    ),
]
