"""PLaMo 3 in torch, after the published formula; parameters have the names of its checkpoints."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Norm(nn.Module):
    """Stores how far the factors are from the usual one."""

    def __init__(self, size, eps, usual=1.0):
        super().__init__()
        self.weight, self.eps, self.usual = nn.Parameter(torch.zeros(size)), eps, usual

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight + self.usual, self.eps)


class Mixer(nn.Module):
    def __init__(self, config, full):
        super().__init__()
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        self.size, hidden = config["head_dim"], config["hidden_size"]
        self.theta = config["rope_theta"] if full else config["rope_local_theta"]
        self.window = None if full else config["window_size"]
        self.qkv_proj = nn.Linear(hidden, (self.heads + 2 * self.groups) * self.size, bias=False)
        self.o_proj = nn.Linear(self.heads * self.size, hidden, bias=False)
        self.q_norm, self.k_norm = (Norm(self.size, config["rms_norm_eps"]) for _ in range(2))

    def forward(self, x):
        heads = [self.heads, self.groups, self.groups]
        q, k, v = self.qkv_proj(x).unflatten(-1, (-1, self.size)).split(heads, dim=1)
        q, k = self.rotate(self.q_norm(q)), self.rotate(self.k_norm(k))
        k, v = (one.repeat_interleave(self.heads // self.groups, dim=1) for one in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / self.size**0.5
        places = torch.arange(len(x))
        back = places[:, None] - places[None, :]
        hidden = back < 0 if self.window is None else (back < 0) | (back >= self.window)
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        return self.o_proj(torch.einsum("hqk,khd->qhd", weights, v).flatten(1))

    def rotate(self, x):
        half = self.size // 2
        angles = torch.outer(torch.arange(len(x)), self.theta ** -(torch.arange(half) / half))[:, None]
        first, second = x.chunk(2, dim=-1)
        return torch.cat(
            (first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()), dim=-1
        )


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_up_proj = nn.Linear(hidden, 2 * inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        size, eps = config["hidden_size"], config["rms_norm_eps"]
        self.mixer = Mixer(config, (index + 1) % config["sliding_window_pattern"] == 0)
        self.mlp = MLP(config)
        self.pre_mixer_norm, self.post_mixer_norm = Norm(size, eps), Norm(size, eps, 1 / 5)
        self.pre_mlp_norm, self.post_mlp_norm = Norm(size, eps), Norm(size, eps, 1 / 5**1.5)

    def forward(self, x):
        x = x + self.post_mixer_norm(self.mixer(self.pre_mixer_norm(x)))
        return x + self.post_mlp_norm(self.mlp(self.pre_mlp_norm(x)))


class Plamo3(nn.Module):
    """`(1, tokens) int64 -> (1, tokens, vocab)`."""

    def __init__(self, config):
        super().__init__()
        vocabulary, hidden, count = config["vocab_size"], config["hidden_size"], config["num_hidden_layers"]
        layers = nn.ModuleList(Layer(config, index) for index in range(count))
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(vocabulary, hidden),
                "layers": nn.ModuleDict({"layers": layers}),
                "norm": Norm(hidden, config["rms_norm_eps"]),
            }
        )
        if not config.get("tie_word_embeddings", True):
            self.lm_head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.model["embed_tokens"](tokens[0])
        for layer in self.model["layers"]["layers"]:
            x = layer(x)
        head = self.lm_head if hasattr(self, "lm_head") else self.model["embed_tokens"]
        return (self.model["norm"](x) @ head.weight.T)[None]
