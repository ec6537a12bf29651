"""Jais as its authors describe it, in plain torch: GPT-2 with ALiBi, SwiGLU and the factors of muP."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.functional import gelu, linear, silu


def slopes(heads):
    """The slopes of the paper on ALiBi, with its rule for numbers of heads that are no power of two."""

    def series(count):
        start = 2 ** (-8 / count)
        return [start**step for step in range(1, count + 1)]

    below = 2 ** math.floor(math.log2(heads))
    return torch.tensor(series(below) + series(2 * below)[::2][: heads - below])


class Attention(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        size, self.heads = config["n_embd"], config["n_head"]
        self.c_attn, self.c_proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.scale = (size // self.heads) ** (-1.0 if config.get("mup_scale_qk_dot_prod") else -0.5)
        if config.get("scale_attn_by_inverse_layer_idx"):
            self.scale /= index + 1

    def forward(self, x):
        batch, length, size = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1))
        places = torch.arange(length)
        distance = places[None, :] - places[:, None]
        scores = q @ k.transpose(-1, -2) * self.scale + slopes(self.heads)[:, None, None] * distance
        scores = scores.masked_fill(distance > 0, -math.inf).softmax(-1)
        return self.c_proj((scores @ v).transpose(1, 2).reshape(batch, length, size))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        size, inner = config["n_embd"], config.get("n_inner") or 4 * config["n_embd"]
        self.c_fc, self.c_proj = nn.Linear(size, inner), nn.Linear(inner, size)
        self.c_fc2 = nn.Linear(size, inner) if config["activation_function"] == "swiglu" else None

    def forward(self, x):
        wide = self.c_fc(x)
        return self.c_proj(gelu(wide) if self.c_fc2 is None else wide * silu(self.c_fc2(x)))


class Block(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config["n_embd"]), nn.LayerNorm(config["n_embd"])
        self.attn, self.mlp = Attention(config, index), MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Jais(nn.Module):
    """`(batch, tokens) int64 -> logits`."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config["vocab_size"], config["n_embd"]),
                "h": nn.ModuleList(Block(config, index) for index in range(config["n_layer"])),
                "ln_f": nn.LayerNorm(config["n_embd"]),
            }
        )

    def factor(self, older, *newer):
        return self.config[older] if older in self.config else math.prod(self.config.get(key, 1.0) for key in newer)

    def forward(self, tokens):
        x = self.transformer["wte"](tokens) * self.factor("embeddings_scale", "mup_embeddings_scale")
        for block in self.transformer["h"]:
            x = block(x)
        logits = linear(self.transformer["ln_f"](x), self.transformer["wte"].weight)
        return logits * self.factor("width_scale", "mup_output_alpha", "mup_width_scale")
