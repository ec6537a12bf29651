"""ChatGLM2 and 3 in torch, after the published formula; parameters have the names of their checkpoints."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.size = config["num_attention_heads"], config["kv_channels"]
        self.shared = config.get("multi_query_attention", False)
        self.groups = config["multi_query_group_num"] if self.shared else self.heads
        self.interleaved = config.get("original_rope", True)
        self.theta = 10000.0 * config.get("rope_ratio", 1.0)
        linear = config.get("add_bias_linear", False)
        hidden, width = config["hidden_size"], self.heads * self.size
        inner = width + 2 * self.groups * self.size
        self.query_key_value = nn.Linear(hidden, inner, bias=linear or config.get("add_qkv_bias", False))
        self.dense = nn.Linear(width, hidden, bias=linear)

    def forward(self, x):
        tokens = x.shape[1]
        q, k, v = self.split(self.query_key_value(x)[0])
        q, k = self.rotate(q), self.rotate(k)
        k, v = (one.repeat_interleave(self.heads // self.groups, dim=1) for one in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / self.size**0.5
        hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        return self.dense(torch.einsum("hqk,khd->qhd", weights, v).reshape(1, tokens, -1))

    def split(self, joined):
        """`(tokens, features) ->` three times `(tokens, heads, size)`."""
        if not self.shared:
            return joined.view(len(joined), self.heads, 3 * self.size).chunk(3, dim=-1)
        sizes = [self.heads * self.size, self.groups * self.size, self.groups * self.size]
        return [one.reshape(len(joined), -1, self.size) for one in joined.split(sizes, dim=-1)]

    def rotate(self, x):
        """Multiply pairs of the first half of a head by `exp(i * position * frequency)`."""
        turned = self.size // 2
        frequencies = self.theta ** -(torch.arange(0, turned, 2) / turned)
        angles = torch.outer(torch.arange(len(x)), frequencies)[:, None]
        first, rest = x[..., :turned], x[..., turned:]
        pairs = first.unflatten(-1, (-1, 2)) if self.interleaved else first.unflatten(-1, (2, -1)).transpose(-1, -2)
        turned_pairs = torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angles), angles)
        back = torch.view_as_real(turned_pairs)
        back = back if self.interleaved else back.transpose(-1, -2)
        return torch.cat((back.flatten(-2), rest), dim=-1)


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner, bias = config["hidden_size"], config["ffn_hidden_size"], config.get("add_bias_linear", False)
        self.dense_h_to_4h = nn.Linear(hidden, 2 * inner, bias=bias)
        self.dense_4h_to_h = nn.Linear(inner, hidden, bias=bias)

    def forward(self, x):
        gate, up = self.dense_h_to_4h(x).chunk(2, dim=-1)
        return self.dense_4h_to_h(F.silu(gate) * up)


def norm(config):
    kind = nn.RMSNorm if config.get("rmsnorm", True) else nn.LayerNorm
    return kind(config["hidden_size"], eps=config["layernorm_epsilon"])


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = norm(config), norm(config)
        self.self_attention, self.mlp = Attention(config), MLP(config)

    def forward(self, x):
        x = x + self.self_attention(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class ChatGLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        vocabulary, hidden = config["padded_vocab_size"], config["hidden_size"]
        parts = {
            "embedding": nn.ModuleDict({"word_embeddings": nn.Embedding(vocabulary, hidden)}),
            "encoder": nn.ModuleDict({"layers": nn.ModuleList(Block(config) for _ in range(config["num_layers"]))}),
            "output_layer": nn.Linear(hidden, vocabulary, bias=False),
        }
        self.transformer = nn.ModuleDict(parts)
        if config.get("post_layer_norm", True):
            self.transformer["encoder"]["final_layernorm"] = norm(config)

    def forward(self, ids):
        x = self.transformer["embedding"]["word_embeddings"](ids)
        for block in self.transformer["encoder"]["layers"]:
            x = block(x)
        if "final_layernorm" in self.transformer["encoder"]:
            x = self.transformer["encoder"]["final_layernorm"](x)
        return self.transformer["output_layer"](x)
