"""Tiny checkpoints of this family, and the published formula in torch."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from core_testing.families import TinyFamily


def unit(x):
    """Return rows of length 1."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def rotated(x, rope):
    """Return queries or keys `(tokens, heads, size)` turned by their positions, a share of each head."""
    turning = int(x.shape[-1] * rope.get("partial_rotary_factor", 1.0))
    half = turning // 2
    angles = torch.outer(torch.arange(len(x)).float(), rope["rope_theta"] ** (-torch.arange(half).float() / half))
    sine, cosine = angles.sin()[:, None], angles.cos()[:, None]
    first, second, rest = x.split([half, half, x.shape[-1] - turning], dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine, rest), dim=-1)


class Attention(nn.Module):
    """Attention of one kind of layers."""

    def __init__(self, config, kind):
        super().__init__()
        self.config, self.rope = config, config["rope_parameters"][kind]
        self.window = config["sliding_window"] if kind == "sliding_attention" else None
        self.size, hidden = config["head_dim"], config["hidden_size"]
        queries, keys = (config[f"num_{name}_heads"] * self.size for name in ("attention", "key_value"))
        sizes = {"q_proj": queries, "k_proj": keys, "v_proj": keys, "g_proj": queries}
        for name, size in sizes.items():
            setattr(self, name, nn.Linear(hidden, size, bias=False))
        self.o_proj = nn.Linear(queries, hidden, bias=False)
        self.sqk, self.s_gate = nn.Parameter(torch.ones(queries)), nn.Parameter(torch.ones(queries))

    def forward(self, x):
        config, size, deviation = self.config, self.size, self.config["initializer_range"]
        q, k, v = (one(x).unflatten(-1, (-1, size)) for one in (self.q_proj, self.k_proj, self.v_proj))
        factor = (self.sqk * size**0.5 / deviation).square().view(-1, size)
        q, k = factor * unit(rotated(q, self.rope)), unit(rotated(k, self.rope))
        k, v = (one.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for one in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * size**-0.5
        places = torch.arange(len(x))
        back = places[:, None] - places[None]
        unseen = (back < 0) if self.window is None else (back < 0) | (back >= self.window)
        out = torch.einsum("hqk,khd->qhd", scores.masked_fill(unseen, -torch.inf).softmax(-1), v).flatten(1)
        usual = config.get("attention_output_gate_logit_scale_init", config["hidden_size"] ** 0.5)
        gate = self.g_proj(x) * (self.s_gate * usual**0.5 / deviation).square()
        return self.o_proj(unit(out * gate.sigmoid()))


class Inner(nn.Module):
    """The MLP."""

    def __init__(self, config):
        super().__init__()
        hidden, size = config["hidden_size"], config["intermediate_size"]
        self.gate_proj, self.up_proj = (nn.Linear(hidden, size, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(size, hidden, bias=False)
        self.suv_gate, self.suv_up = (nn.Parameter(torch.ones(size)) for _ in range(2))
        self.factor = hidden**0.5

    def forward(self, x):
        gate, up = self.gate_proj(x) * self.suv_gate * self.factor, self.up_proj(x) * self.suv_up * self.factor
        return self.down_proj(unit(functional.silu(gate) * up))


class Layer(nn.Module):
    """The residual moves towards what the mixer gives."""

    def __init__(self, config, kind):
        super().__init__()
        self.mixer = Inner(config) if kind == "mlp" else Attention(config, kind)
        self.alpha = "mlp_alpha" if kind == "mlp" else "attn_alpha"
        setattr(self, self.alpha, nn.Parameter(torch.ones(config["hidden_size"])))
        self.scale = config["ngpt_alpha_init"] / config["initializer_range"]

    def forward(self, x):
        start, end = unit(x), unit(self.mixer(x))
        return unit(start + (getattr(self, self.alpha) * self.scale).abs() * (end - start))


class Reference(nn.Module):
    """Layers before, layers that run several times, layers behind."""

    def __init__(self, config):
        super().__init__()
        vocabulary, hidden, count = config["vocab_size"], config["hidden_size"], config["num_hidden_layers"]
        usual = [
            "mlp" if index % 2 else f"{'full' if index % 8 == 6 else 'sliding'}_attention" for index in range(count)
        ]
        self.backbone = nn.Module()
        self.backbone.embeddings = nn.Embedding(vocabulary, hidden)
        self.backbone.layers = nn.ModuleList(Layer(config, kind) for kind in config.get("layer_types", usual))
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)
        self.lm_head.logit_scale = nn.Parameter(torch.ones(vocabulary))
        self.config = config

    def forward(self, tokens):
        config, layers = self.config, self.backbone.layers
        first, end = config.get("n_input_layers", 0), len(layers) - config.get("n_output_layers", 0)
        x = self.backbone.embeddings(tokens[0])
        for layer in layers[:first]:
            x = layer(x)
        given = x
        for _ in range(config.get("n_recurrent_loops", 1)):
            x = unit(x + given)
            for layer in layers[first:end]:
                x = layer(x)
            x = unit(x)
        for layer in layers[end:]:
            x = layer(x)
        return (self.lm_head(x) * self.lm_head.logit_scale / config["initializer_range"])[None]


_USUAL = {
    "model_type": "dory",
    "head_dim": 20,
    "initializer_range": 0.7,
    "ngpt_alpha_init": 0.3,
    "sliding_window": 6,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        "full_attention": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
    },
}

ROWS = [
    TinyFamily(
        "dory",
        "DoryForCausalLM",
        {
            **_USUAL,
            "num_hidden_layers": 6,
            "layer_types": ["sliding_attention", "mlp", "full_attention", "mlp", "mlp", "sliding_attention"],
            "n_input_layers": 2,
            "n_recurrent_layers": 3,
            "n_output_layers": 1,
            "n_recurrent_loops": 3,
        },
        reference=Reference,
    ),
    TinyFamily(
        "dory_whole",
        "DoryForCausalLM",
        {**_USUAL, "num_hidden_layers": 8, "n_recurrent_loops": 2, "attention_output_gate_logit_scale_init": 3.0},
        reference=Reference,
    ),
    TinyFamily(
        "dory_once",
        "DoryForCausalLM",
        {
            **_USUAL,
            "num_hidden_layers": 4,
            "layer_types": ["full_attention", "mlp", "full_attention", "mlp"],
            "n_input_layers": 2,
            "n_output_layers": 2,
            "n_recurrent_layers": 0,
            "num_key_value_heads": 4,
        },
        reference=Reference,
    ),
]
