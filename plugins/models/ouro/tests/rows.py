"""Tiny checkpoints of this family, and the published formula in torch."""

from __future__ import annotations

from torch import nn

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, sizes_of


class Twice(nn.Module):
    """A layer with norms before and behind."""

    def __init__(self, layer, hidden, eps):
        super().__init__()
        self.self_attn, self.mlp = layer.self_attn, layer.mlp
        self.input_layernorm, self.input_layernorm_2 = (nn.RMSNorm(hidden, eps=eps) for _ in range(2))
        self.post_attention_layernorm, self.post_attention_layernorm_2 = (nn.RMSNorm(hidden, eps=eps) for _ in range(2))

    def forward(self, x):
        x = x + self.input_layernorm_2(self.self_attn(self.input_layernorm(x)))
        return x + self.post_attention_layernorm_2(self.mlp(self.post_attention_layernorm(x)))


class Looped(ReferenceDecoder):
    """The layers and the last norm, again and again."""

    def __init__(self, given, passes):
        super().__init__(given)
        self.passes = passes
        body = self.model
        body.layers = nn.ModuleList(Twice(layer, given.hidden, given.eps) for layer in body.layers)
        body.early_exit_gate = nn.Linear(given.hidden, 1)

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens[0])
        for _ in range(self.passes):
            for layer in self.model.layers:
                x = layer(x)
            x = self.model.norm(x)
        weight = self.model.embed_tokens.weight if self.given.tied else self.lm_head.weight
        return (x @ weight.T)[None]


def reference(config):
    """Return the published formula."""
    given = Reference(**sizes_of(config), tied=config.get("tie_word_embeddings", False), windows=windows_of(config))
    passes = config["total_ut_steps"] if config.get("early_exit_step") is None else config["early_exit_step"] + 1
    return Looped(given, passes)


def windows_of(config):
    """Return the window of each layer."""
    kinds = config.get("layer_types") or ["full_attention"] * config["num_hidden_layers"]
    return [config["sliding_window"] if kind == "sliding_attention" else None for kind in kinds]


_OURO = {"model_type": "ouro", "early_exit_threshold": 1.0, "head_dim": 20}

ROWS = [
    TinyFamily("ouro", "OuroForCausalLM", {**_OURO, "total_ut_steps": 3}, reference=reference, spread=0.2),
    TinyFamily(
        "ouro_windows",
        "OuroForCausalLM",
        {
            **_OURO,
            "total_ut_steps": 4,
            "early_exit_step": 1,
            "use_sliding_window": True,
            "sliding_window": 6,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "rms_norm_eps": 1e-5,
            "rope_theta": 5000.0,
            "num_key_value_heads": 4,
        },
        reference=reference,
        spread=0.2,
    ),
    TinyFamily(
        "ouro_tied",
        "OuroForCausalLM",
        {**_OURO, "total_ut_steps": 2, "tie_word_embeddings": True},
        reference=reference,
        spread=0.2,
    ),
]
