"""Grok in plain torch, from its published formula: one text at a time, in float32."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional


def capped(x, cap):
    return cap * torch.tanh(x / cap)


class Gated(nn.Module):
    """An MLP with a gate."""

    def __init__(self, hidden, inner):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.w2 = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.w2(functional.gelu(self.w1(x), approximate="tanh") * self.w3(x))


class Attention(nn.Module):
    """Grouped queries, whose scores are capped."""

    def __init__(self, config):
        super().__init__()
        self.config, hidden, size = config, config["hidden_size"], config["head_dim"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.q_proj = nn.Linear(hidden, self.heads * size, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(hidden, self.kv_heads * size, bias=False) for _ in range(2))
        self.o_proj = nn.Linear(self.heads * size, hidden, bias=False)

    def rotated(self, x):
        half = x.shape[-1] // 2
        frequencies = self.config.get("rope_theta", 10000.0) ** (-torch.arange(half) / half)
        angles = torch.outer(torch.arange(len(x)), frequencies)[:, None]
        first, second = x.chunk(2, dim=-1)
        sine, cosine = angles.sin(), angles.cos()
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)

    def forward(self, x):
        size = self.config["head_dim"]
        q, k, v = (one(x).unflatten(-1, (-1, size)) for one in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.rotated(q), self.rotated(k)
        k, v = (one.repeat_interleave(self.heads // self.kv_heads, dim=1) for one in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * self.config["attn_output_multiplier"]
        scores = capped(scores, self.config.get("attn_logit_softcapping", 30.0))
        scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf)
        return self.o_proj(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1))


class Mixture(nn.Module):
    """Experts by their shares of capped logits, and the MLP beside them."""

    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.count = config.get("num_experts") or config["num_local_experts"]
        self.top_k, self.cap = config["num_experts_per_tok"], config.get("router_logit_softcapping", 30.0)
        self.gate = nn.Linear(hidden, self.count, bias=False)
        size = config.get("moe_intermediate_size") or inner
        self.experts = nn.ModuleList(Gated(hidden, size) for _ in range(self.count))
        self.beside = Gated(hidden, inner) if config.get("residual_moe") else None

    def forward(self, x):
        out = torch.zeros_like(x)
        for token, row in enumerate(x):
            weights, ids = capped(self.gate(row), self.cap).softmax(-1).topk(self.top_k)
            for weight, expert in zip(weights, ids.tolist(), strict=True):
                out[token] += weight * self.experts[expert](row)
        return out if self.beside is None else (out + self.beside(x)) / math.sqrt(2)


class Layer(nn.Module):
    """Attention and experts, each between two norms."""

    def __init__(self, config):
        super().__init__()
        self.attn, self.moe = Attention(config), Mixture(config)
        norms = [nn.RMSNorm(config["hidden_size"], eps=config["rms_norm_eps"]) for _ in range(4)]
        self.pre_attn_norm, self.post_attn_norm, self.pre_moe_norm, self.post_moe_norm = norms

    def forward(self, x):
        x = x + self.post_attn_norm(self.attn(self.pre_attn_norm(x)))
        return x + self.post_moe_norm(self.moe(self.pre_moe_norm(x)))


class Grok(nn.Module):
    """The whole decoder, `(1, tokens) -> (1, tokens, vocab)`."""

    def __init__(self, config):
        super().__init__()
        self.config, hidden = config, config["hidden_size"]
        self.embed_tokens = nn.Embedding(config["vocab_size"], hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(hidden, eps=config["rms_norm_eps"])
        if not config.get("tie_word_embeddings"):
            self.lm_head = nn.Linear(hidden, config["vocab_size"], bias=False)

    def forward(self, tokens):
        x = self.embed_tokens(tokens[0]) * self.config["embedding_multiplier_scale"]
        for layer in self.layers:
            x = layer(x)
        head = self.embed_tokens if self.config.get("tie_word_embeddings") else self.lm_head
        logits = self.norm(x) @ head.weight.T * self.config["output_multiplier_scale"]
        cap = self.config.get("final_logit_softcapping")
        return (logits if cap is None else capped(logits, cap))[None]


def first(name, tensor):
    """Return the names of Grok-1's checkpoints."""
    for old, new in ((".moe.", ".moe_block."), (".w1.", ".linear."), (".w3.", ".linear_v."), (".w2.", ".linear_1.")):
        name = name.replace(old, new)
    name = name.replace("norm.weight", "norm.scale")
    return [(f"model.{name}", tensor)]


def second(name, tensor):
    """Return the names of Grok-2's checkpoints."""
    name = name.replace(".attn.", ".self_attn.")
    for old, new in (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj")):
        name = name.replace(f".moe.beside.{old}", f".mlp.{new}")
    name = name.replace(".moe.", ".block_sparse_moe.")
    return [(name if name.startswith("lm_head") else f"model.{name}", tensor)]
