"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, sizes_of

_SKIPS = {
    "bskcn_1": [1, 3],
    "bskcn_2": [2],
    "bskcn_3": [2, 5],
    "bskcn_4": [4, 5],
    "bskcn_tv": [0.9, 0.7],
}


class Skipping(ReferenceDecoder):
    """The published formula: states that are kept before some layers are blended into those before others."""

    def __init__(self, config):
        bias = config.get("attention_bias", False)
        super().__init__(
            Reference(
                **sizes_of(config),
                qkv_bias=bias,
                output_bias=bias,
                mlp_bias=config.get("mlp_bias", False),
                down_bias=config.get("mlp_bias", False),
                tied=config.get("tie_word_embeddings", False),
            )
        )
        self.config = config

    def forward(self, tokens):
        x, config, kept = self.model.embed_tokens(tokens[0]), self.config, {}
        share = config["bskcn_tv"][1]
        for index, layer in enumerate(self.model.layers):
            for place in (1, 2):
                if index in config[f"bskcn_{place}"]:
                    kept[place] = x
            for place in (1, 2):
                if index in config[f"bskcn_{place + 2}"]:
                    x = kept[place] * share + x * (1 - share)
            x = layer(x)
        weight = self.model.embed_tokens.weight if self.given.tied else self.lm_head.weight
        return (self.model.norm(x) @ weight.T)[None]


ROWS = [
    TinyFamily(
        "solar",
        "SolarForCausalLM",
        {"model_type": "solar", "num_hidden_layers": 6, "sliding_window": 8, **_SKIPS},
        reference=Skipping,
        spread=0.2,
    ),
    TinyFamily(
        "solar_bias",
        "SolarForCausalLM",
        {
            "model_type": "solar",
            "num_hidden_layers": 6,
            **_SKIPS,
            "bskcn_1": [0],
            "bskcn_3": [0, 4],
            "attention_bias": True,
            "mlp_bias": True,
            "rope_theta": 500.0,
            "tie_word_embeddings": True,
        },
        reference=Skipping,
        spread=0.1,
    ),
]
