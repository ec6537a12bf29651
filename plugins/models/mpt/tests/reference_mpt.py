"""MPT as its authors describe it, in plain torch: what transformers' class leaves out of the configuration."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.functional import gelu, linear


def norm(config):
    return nn.LayerNorm(config["d_model"], bias=not config.get("no_bias", True))


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.given, size, bias = config["attn_config"], config["d_model"], not config.get("no_bias", True)
        self.heads, self.head_dim = config["n_heads"], size // config["n_heads"]
        kind = self.given.get("attn_type", "multihead_attention")
        shared = {"multiquery_attention": 1, "grouped_query_attention": self.given.get("kv_n_heads")}
        self.sizes = [size, *[shared.get(kind, self.heads) * self.head_dim] * 2]
        self.Wqkv = nn.Linear(size, sum(self.sizes), bias=bias)
        self.out_proj = nn.Linear(size, size, bias=bias)
        if self.given.get("qk_ln"):
            self.q_ln, self.k_ln = (nn.LayerNorm(width, bias=bias) for width in self.sizes[:2])

    def forward(self, x):
        batch, length, size = x.shape
        joined = self.Wqkv(x)
        if self.given.get("clip_qkv"):
            joined = joined.clamp(-self.given["clip_qkv"], self.given["clip_qkv"])
        q, k, v = joined.split(self.sizes, -1)
        if self.given.get("qk_ln"):
            q, k = self.q_ln(q), self.k_ln(k)
        q, k, v = (part.view(batch, length, -1, self.head_dim).transpose(1, 2) for part in (q, k, v))
        k, v = (part.repeat_interleave(self.heads // part.shape[1], 1) for part in (k, v))
        places = torch.arange(length)
        distance = places[None, :] - places[:, None]
        scores = q @ k.transpose(-1, -2) * self.head_dim**-0.5
        if self.given.get("alibi"):  # these rows have as many heads as a power of two
            slopes = 2.0 ** (-self.given.get("alibi_bias_max", 8) * torch.arange(1, self.heads + 1) / self.heads)
            scores = scores + slopes[:, None, None] * distance
        scores = scores.masked_fill(distance > 0, -math.inf).softmax(-1)
        return self.out_proj((scores @ v).transpose(1, 2).reshape(batch, length, size))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        size, bias = config["d_model"], not config.get("no_bias", True)
        inner = size * config.get("expansion_ratio", 4)
        self.up_proj, self.down_proj = nn.Linear(size, inner, bias=bias), nn.Linear(inner, size, bias=bias)

    def forward(self, x):
        return self.down_proj(gelu(self.up_proj(x)))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm_1, self.norm_2 = norm(config), norm(config)
        self.attn, self.ffn = Attention(config), MLP(config)

    def forward(self, x):
        x = x + self.attn(self.norm_1(x))
        return x + self.ffn(self.norm_2(x))


class MPT(nn.Module):
    """`(batch, tokens) int64 -> logits`."""

    def __init__(self, config):
        super().__init__()
        parts = {
            "wte": nn.Embedding(config["vocab_size"], config["d_model"]),
            "blocks": nn.ModuleList(Block(config) for _ in range(config["n_layers"])),
            "norm_f": norm(config),
        }
        if not config["attn_config"].get("alibi"):
            parts["wpe"] = nn.Embedding(config["max_seq_len"], config["d_model"])
        self.transformer = nn.ModuleDict(parts)
        scale = config.get("logit_scale", 1.0)
        self.scale = config["d_model"] ** -0.5 if scale == "inv_sqrt_d_model" else scale

    def forward(self, tokens):
        parts = self.transformer
        x = parts["wte"](tokens)
        if "wpe" in parts:
            x = x + parts["wpe"](torch.arange(tokens.shape[1]))
        for block in parts["blocks"]:
            x = block(x)
        return linear(parts["norm_f"](x), parts["wte"].weight) * self.scale
