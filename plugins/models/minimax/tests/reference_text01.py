"""MiniMax-Text-01 in torch, after the published formula; parameters have the names of its checkpoints."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F


def slopes(heads):
    """Those of ALiBi: where heads are no power of two, every other one of twice as many fills up."""
    power = 2 ** math.floor(math.log2(heads))
    found = [2 ** (-8 * head / power) for head in range(1, power + 1)]
    if power == heads:
        return found
    return found + slopes(2 * power)[::2][: heads - power]


class Lightning(nn.Module):
    """Of each head all products of queries and earlier keys, decayed by distance; no blocks, no state."""

    def __init__(self, config, index):
        super().__init__()
        self.heads, self.size, hidden = config["num_attention_heads"], config["head_dim"], config["hidden_size"]
        wide = self.heads * self.size
        self.qkv_proj = nn.Linear(hidden, 3 * wide, bias=False)
        self.norm = nn.RMSNorm(wide, eps=1e-6)
        self.output_gate, self.out_proj = nn.Linear(hidden, wide, bias=False), nn.Linear(wide, hidden, bias=False)
        flatter = 1 - index / (config["num_hidden_layers"] - 1) + 1e-5
        self.slopes = torch.tensor(slopes(self.heads)) * flatter

    def forward(self, x):
        q, k, v = F.silu(self.qkv_proj(x)).unflatten(-1, (self.heads, -1)).split(self.size, dim=-1)
        places = torch.arange(len(x))
        back = places[:, None] - places[None, :]
        decay = torch.exp(-self.slopes[:, None, None].to(x.dtype) * back).masked_fill(back < 0, 0)
        found = torch.einsum("qhd,khd,hqk,khe->qhe", q, k, decay, v).flatten(1)
        return self.out_proj(torch.sigmoid(self.output_gate(x)) * self.norm(found))


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        self.size, self.rotary, self.theta = config["head_dim"], config["rotary_dim"], config["rope_theta"]
        hidden, keys = config["hidden_size"], self.groups * self.size
        self.q_proj = nn.Linear(hidden, self.heads * self.size, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(hidden, keys, bias=False) for _ in range(2))
        self.o_proj = nn.Linear(self.heads * self.size, hidden, bias=False)

    def forward(self, x):
        q, k, v = (one(x).unflatten(-1, (-1, self.size)) for one in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.rotate(q), self.rotate(k)
        k, v = (one.repeat_interleave(self.heads // self.groups, dim=1) for one in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / self.size**0.5
        later = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        return self.o_proj(
            torch.einsum("hqk,khd->qhd", scores.masked_fill(later, -torch.inf).softmax(-1), v).flatten(1)
        )

    def rotate(self, x):
        half = self.rotary // 2
        angles = torch.outer(torch.arange(len(x)), self.theta ** -(torch.arange(half) / half))[:, None]
        first, second, rest = x.split([half, half, self.size - self.rotary], dim=-1)
        turned = (first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin())
        return torch.cat((*turned, rest), dim=-1)


class Expert(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.w2 = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Experts(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, self.chosen = config["hidden_size"], config["num_experts_per_tok"]
        count, inner = config["num_local_experts"], config["intermediate_size"]
        self.gate = nn.Linear(hidden, count, bias=False)
        self.experts = nn.ModuleList(Expert(hidden, inner) for _ in range(count))

    def forward(self, x):
        weights, ids = self.gate(x).softmax(-1).topk(self.chosen, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        share = torch.zeros(len(x), len(self.experts), dtype=x.dtype).scatter(1, ids, weights)
        return sum(share[:, [number]] * expert(x) for number, expert in enumerate(self.experts))


class Layer(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        full = config["attn_type_list"][index]
        size, eps, kind = config["hidden_size"], config["rms_norm_eps"], "full" if full else "linear"
        self.self_attn = Attention(config) if full else Lightning(config, index)
        self.block_sparse_moe = Experts(config)
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(size, eps=eps) for _ in range(2))
        parts = (f"{kind}_attention", "mlp")
        self.factors = [[config[f"layernorm_{part}_{which}"] for which in ("alpha", "beta")] for part in parts]

    def forward(self, x):
        bodies = ((self.input_layernorm, self.self_attn), (self.post_attention_layernorm, self.block_sparse_moe))
        for (norm, body), (alpha, beta) in zip(bodies, self.factors, strict=True):
            x = norm(x)
            x = x * alpha + body(x) * beta
        return x


class Text01(nn.Module):
    """`(1, tokens) int64 -> (1, tokens, vocab)`."""

    def __init__(self, config):
        super().__init__()
        vocabulary, hidden, count = config["vocab_size"], config["hidden_size"], config["num_hidden_layers"]
        layers = nn.ModuleList(Layer(config, index) for index in range(count))
        norm = nn.RMSNorm(hidden, eps=config["rms_norm_eps"])
        self.model = nn.ModuleDict({"embed_tokens": nn.Embedding(vocabulary, hidden), "layers": layers, "norm": norm})
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.model["embed_tokens"](tokens[0])
        for layer in self.model["layers"]:
            x = layer(x)
        return self.lm_head(self.model["norm"](x))[None]
