"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, sizes_of


class Looped(ReferenceDecoder):
    """The published formula: all layers several times, and the norm behind each time or behind the last."""

    def __init__(self, config):
        bias = config.get("attention_bias", False)
        tied = config.get("tie_word_embeddings", False)
        super().__init__(Reference(**sizes_of(config), qkv_bias=bias, output_bias=bias, tied=tied))
        weights = config.get("loop_loss_weights")
        self.loops = len(weights) + 1 if weights else config.get("num_loops", 1)
        self.between = not config.get("skip_loop_final_norm", False)

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens[0])
        for loop in range(self.loops):
            for layer in self.model.layers:
                x = layer(x)
            if self.between or loop + 1 == self.loops:
                x = self.model.norm(x)
        weight = self.model.embed_tokens.weight if self.given.tied else self.lm_head.weight
        return (x @ weight.T)[None]


_USUAL = {"model_type": "nanbeige", "rms_norm_eps": 1e-5, "head_dim": 24, "loop_loss_weights": []}

ROWS = [
    TinyFamily(
        "nanbeige",
        "NanbeigeForCausalLM",
        {**_USUAL, "num_loops": 2, "rope_theta": 70000.0, "num_attention_heads": 6},
        reference=Looped,
    ),
    TinyFamily(
        "nanbeige_thrice",
        "NanbeigeForCausalLM",
        {
            **_USUAL,
            "num_hidden_layers": 2,
            "loop_loss_weights": [0.1, 0.2],
            "skip_loop_final_norm": True,
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
        reference=Looped,
        spread=0.1,
    ),
]
