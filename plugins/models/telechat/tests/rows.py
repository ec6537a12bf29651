"""Tiny checkpoints of these families."""

from __future__ import annotations

import json
import math

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, renamed, sizes_of

_BLOOM = renamed(
    ("self_attn.q_proj", "self_attention.query"),
    ("self_attn.kv_proj", "self_attention.key_value"),
    ("self_attn.o_proj", "self_attention.dense"),
    ("model.layers.", "transformer.h."),
    ("model.embed_tokens", "transformer.word_embeddings"),
    ("model.norm", "transformer.ln_f"),
    ("model.", "transformer."),
)
_SIZES = {
    "n_layer": 3,
    "n_head": 4,
    "ffn_hidden_size": 88,
    "layer_norm_epsilon": 1e-5,
    "num_hidden_layers": None,
    "num_attention_heads": None,
    "num_key_value_heads": None,
    "intermediate_size": None,
    "max_position_embeddings": None,
}


_UNTIED = {"tie_word_embeddings": False}


class Normed(ReferenceDecoder):
    """With a norm behind the embedding."""

    def __init__(self, given):
        from torch import nn

        super().__init__(given)
        self.model.word_embeddings_layernorm = nn.RMSNorm(given.hidden, eps=given.eps)

    def forward(self, tokens):
        x = self.model.word_embeddings_layernorm(self.model.embed_tokens(tokens[0]))
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(self.model.norm(x))[None]


def telechat(config):
    """Return the published formula of the first two generations, for texts within the length of training."""
    heads, hidden = config["n_head"], config["hidden_size"]
    size = config.get("head_dim") or hidden // heads
    alpha = max(2 ** math.ceil(math.log2(config["training_seqlen"] / config["base_seqlen"]) + 1) - 1, 1)
    given = Reference(
        vocab=config["vocab_size"],
        hidden=hidden,
        inner=config["ffn_hidden_size"],
        layers=config["n_layer"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=size,
        eps=1e-5,
        qkv="keyed",
        output_bias=True,
        down_bias=True,
        theta=10000.0 * alpha ** (size / (size - 2)),
        tied=config.get("tie_word_embeddings", True),
    )
    return (Normed if config.get("embed_layernorm") else ReferenceDecoder)(given)


def telechat3(config):
    """Return Llama with YaRN whose stretch is that of TeleChat 3."""
    import transformers

    scaling = {**config["rope_scaling"], "rope_type": "yarn"}
    scaling["attention_factor"] = 1 + 0.07 * math.log(scaling["factor"])
    given = {key: value for key, value in json.loads(json.dumps(config)).items() if key != "rope_scaling"}
    made = transformers.LlamaConfig(**given | {"rope_parameters": {**scaling, "rope_theta": config["rope_theta"]}})
    made._attn_implementation = "eager"
    return transformers.LlamaForCausalLM(made)


def teleflm(config):
    """Return Llama with factors."""
    return ReferenceDecoder(
        Reference(
            **sizes_of(config),
            embed_scale=config["input_mult"] if config["use_mup"] else 1.0,
            logit_scale=config["output_mult"] / config["mup_scale_factor"] if config["use_mup"] else 1.0,
            tied=config.get("tie_word_embeddings", False),
        )
    )


_YARN = {"type": "telechat3-yarn", "factor": 4.0, "original_max_position_embeddings": 64}
_MUP = {"model_type": "TeleFLM", "use_mup": True, "input_mult": 3.0, "output_mult": 5.0, "mup_scale_factor": 8.0}

ROWS = [
    TinyFamily(
        "telechat2",
        "TeleChat2ForCausalLM",
        {"model_type": "telechat", **_SIZES, **_UNTIED, "training_seqlen": 256, "base_seqlen": 256},
        reference=telechat,
        save=_BLOOM,
    ),
    TinyFamily(
        "telechat2_groups",
        "TeleChat2ForCausalLM",
        {"model_type": "telechat", **_SIZES, "num_key_value_heads": 2, "training_seqlen": 256, "base_seqlen": 100},
        reference=telechat,
        save=_BLOOM,
        spread=0.2,
    ),
    TinyFamily(
        "telechat",
        "TeleChatForCausalLM",
        {
            "model_type": "telechat",
            **_SIZES,
            **_UNTIED,
            "training_seqlen": 256,
            "base_seqlen": 64,
            "embed_layernorm": True,
            "use_RMSNorm": True,
        },
        reference=telechat,
        save=_BLOOM,
    ),
    TinyFamily(
        "telechat3",
        "TeleChat3ForCausalLM",
        {"model_type": "telechat3", "rope_scaling": _YARN, "rope_theta": 20000.0, "mlp_bias": True},
        reference=telechat3,
    ),
    TinyFamily("teleflm", "TeleFLMForCausalLM", _MUP, reference=teleflm),
    TinyFamily(
        "teleflm_plain",
        "TeleFLMForCausalLM",
        {**_MUP, "use_mup": False, "tie_word_embeddings": True, "num_key_value_heads": 1, "rope_theta": 500.0},
        reference=teleflm,
        spread=0.1,
    ),
]
