"""Tiny checkpoints of this family, and transformers' text model with a head."""

from __future__ import annotations

import json

import torch
from torch import nn

from core_testing.families import TinyFamily
from core_testing.reference_decoder import renamed


class Headed(nn.Module):
    """Transformers' text model and the output projection of its whole one."""

    def __init__(self, values):
        import transformers

        super().__init__()
        merged = json.loads(json.dumps({**values, **values.get("text_config", {})}))
        config = transformers.AutoConfig.for_model(
            **{key: value for key, value in merged.items() if key not in ("architectures", "text_config")}
        )
        config._attn_implementation = "eager"
        self.config, self.model = config, transformers.AutoModel.from_config(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens):
        cap = self.config.final_logit_softcapping
        logits = self.lm_head(self.model(tokens).last_hidden_state) * self.config.output_multiplier
        return torch.tanh(logits / cap) * cap


_MUSE = {
    "model_type": "muse_glimmer_text",
    "head_dim": 20,
    "num_hidden_layers": 5,
    "sliding_window": 6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
}

ROWS = [
    TinyFamily("muse_glimmer", "MuseGlimmerForCausalLM", _MUSE, reference=Headed),
    TinyFamily(
        "muse_glimmer_kinds",
        "MuseGlimmerForCausalLM",
        {
            **_MUSE,
            "num_hidden_layers": 3,
            "text_config": {
                "layer_types": ["full_attention", "sliding_attention", "full_attention"],
                "layer_rope_theta": [5000.0, 0, 0],
                "qk_scale_factor": 1.5,
                "output_multiplier": 0.4,
                "final_logit_softcapping": 9.0,
                "post_norm_eps": 1e-3,
                "attention_bias": True,
                "num_key_value_heads": 1,
            },
        },
        reference=Headed,
        # In one layer: a tensor that is missing is called by its name in the model, and the suite takes one of layer 1.
        save=renamed(
            ("model.layers.0.", "model.language_model.layers.0."), ("model.norm.", "model.language_model.norm.")
        ),
    ),
]
