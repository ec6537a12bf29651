"""PLaMo 2 in torch, after the published formula; parameters have the names of its checkpoints."""

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


def bare(x, eps):
    """The norm of the last dimension without factors."""
    return F.rms_norm(x, x.shape[-1:], eps=eps)


class Attention(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        self.size, hidden = config["hidden_size_per_head"], config["hidden_size"]
        everywhere = index in (config.get("full_attention_idx") or ())
        self.reach = 10**6 if everywhere else config["attention_window_size"]
        self.qkv_proj = nn.Linear(hidden, (self.heads + 2 * self.groups) * self.size, bias=False)
        self.o_proj = nn.Linear(self.heads * self.size, hidden, bias=False)
        self.q_weight = nn.Parameter(torch.ones(self.heads, self.size))
        self.k_weight = nn.Parameter(torch.ones(self.groups, self.size))

    def forward(self, x):
        heads = [self.heads, self.groups, self.groups]
        q, k, v = self.qkv_proj(x).unflatten(-1, (-1, self.size)).split(heads, dim=1)
        q, k = self.rotate(bare(q, 1e-6) * self.q_weight), self.rotate(bare(k, 1e-6) * self.k_weight)
        k, v = (one.repeat_interleave(self.heads // self.groups, dim=1) for one in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / self.size**0.5
        places = torch.arange(len(x))
        back = places[:, None] - places[None, :]
        weights = scores.masked_fill((back < 0) | (back > self.reach), -torch.inf).softmax(-1)
        return self.o_proj(torch.einsum("hqk,khd->qhd", weights, v).flatten(1))

    def rotate(self, x):
        half = self.size // 2
        angles = torch.outer(torch.arange(len(x)), 10000.0 ** -(torch.arange(half) / half))[:, None]
        first, second = x.chunk(2, dim=-1)
        return torch.cat(
            (first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()), dim=-1
        )


class Mamba(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.size = config["mamba_num_heads"], config["hidden_size_per_head"]
        self.state, self.eps, hidden = config["mamba_d_state"], config["rms_norm_eps"], config["hidden_size"]
        self.rank, inner, width = max(64, hidden // 16), self.heads * self.size, config["mamba_d_conv"]
        self.in_proj = nn.Linear(hidden, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, width, groups=inner, padding=width - 1, bias=False)
        self.bcdt_proj = nn.Linear(inner, self.rank + 2 * self.state, bias=False)
        self.dt_proj = nn.Linear(self.rank, self.heads, bias=False)
        self.dt_bias, self.A_log, self.D = (nn.Parameter(torch.zeros(self.heads)) for _ in range(3))
        self.dt_norm_weight = nn.Parameter(torch.ones(self.rank))
        self.B_norm_weight, self.C_norm_weight = (nn.Parameter(torch.ones(self.state)) for _ in range(2))
        self.out_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, hidden):
        z, x = self.in_proj(hidden).unflatten(-1, (self.heads, -1)).split(self.size, dim=-1)
        x = F.silu(self.conv1d(x.flatten(1).T)[:, : len(hidden)].T)
        b, c, dt = self.bcdt_proj(x).split([self.state, self.state, self.rank], dim=-1)
        b, c = bare(b, self.eps) * self.B_norm_weight, bare(c, self.eps) * self.C_norm_weight
        dt = F.softplus(self.dt_proj(bare(dt, self.eps) * self.dt_norm_weight) + self.dt_bias)
        x, a, found = x.unflatten(-1, (self.heads, -1)), -self.A_log.exp(), []
        state = x.new_zeros(self.heads, self.size, self.state)
        for t in range(len(hidden)):
            kept, added = (dt[t] * a).exp(), torch.einsum("h,hp,n->hpn", dt[t], x[t], b[t])
            state = state * kept[:, None, None] + added
            found.append(state @ c[t] + x[t] * self.D[:, None])
        return self.out_proj((torch.stack(found) * F.silu(z)).flatten(1))


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
        size, eps, step = config["hidden_size"], config["rms_norm_eps"], config["mamba_step"]
        few = config["num_hidden_layers"] <= step // 2
        attends = index == config["num_hidden_layers"] - 1 if few else index % step == step // 2
        self.mixer = Attention(config, index) if attends else Mamba(config)
        self.mlp = MLP(config)
        self.pre_mixer_norm, self.post_mixer_norm = Norm(size, eps), Norm(size, eps, 1 / 5)
        self.pre_mlp_norm, self.post_mlp_norm = Norm(size, eps), Norm(size, eps, 1 / 5**1.5)

    def forward(self, x):
        x = x + self.post_mixer_norm(self.mixer(self.pre_mixer_norm(x)))
        return x + self.post_mlp_norm(self.mlp(self.pre_mlp_norm(x)))


class Plamo2(nn.Module):
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
