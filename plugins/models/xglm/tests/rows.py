"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_WITHOUT = dict.fromkeys(
    ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
)
_SIZES = {
    "model_type": "xglm",
    **_WITHOUT,
    "d_model": 80,
    "ffn_dim": 88,
    "num_layers": 3,
    "attention_heads": 4,
    "pad_token_id": 1,
}

ROWS = [
    TinyFamily("xglm", "XGLMForCausalLM", _SIZES, native={"d_model": 64}),
    TinyFamily(
        "xglm_unscaled",
        "XGLMForCausalLM",
        {**_SIZES, "scale_embedding": False, "activation_function": "relu", "tie_word_embeddings": False},
        native={"d_model": 64},
    ),
]
