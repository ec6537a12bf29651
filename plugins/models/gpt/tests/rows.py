"""Tiny checkpoints of GPT-2 and its kin."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from core_testing.families import TinyFamily

_spec = spec_from_file_location("reference_of_jais", Path(__file__).with_name("reference_jais.py"))
jais = module_from_spec(_spec)
_spec.loader.exec_module(jais)

_WITHOUT = dict.fromkeys(
    (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
    )
)
_SIZES = {**_WITHOUT, "n_embd": 80, "n_layer": 3, "n_head": 4, "n_positions": 256}
_WIDE = {"n_embd": 64}
_NEO = {**_WITHOUT, "hidden_size": 80, "num_layers": 3, "num_heads": 4, "max_position_embeddings": 256}
_NEOX = {"model_type": "gpt_neox", "num_key_value_heads": None}


def bare(name, tensor):
    """Names of the oldest checkpoints, with the causal masks that they store."""
    inside = name.removeprefix("transformer.")
    pairs = [(inside, tensor)] if not name.startswith("lm_head") else []
    if inside.endswith("attn.c_attn.weight"):
        pairs.append((inside.replace("c_attn.weight", "bias"), tensor.new_ones(1, 1, 8, 8).tril()))
    return pairs


def transposed(name, tensor):
    matrix = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight", "c_fc2.weight"))
    return [] if name.startswith("lm_head") else [(name, tensor.T if matrix else tensor)]


ROWS = [
    TinyFamily("gpt2", "GPT2LMHeadModel", {"model_type": "gpt2", **_SIZES}, native=_WIDE),
    TinyFamily(
        "gpt2_by_layer",
        "GPT2LMHeadModel",
        {
            "model_type": "gpt2",
            **_SIZES,
            "n_inner": 88,
            "scale_attn_by_inverse_layer_idx": True,
            "activation_function": "gelu",
            "tie_word_embeddings": False,
        },
        native=_WIDE,
    ),
    TinyFamily(
        "gpt2_bare",
        "GPT2LMHeadModel",
        {"model_type": "gpt2", **_SIZES, "scale_attn_weights": False},
        save=bare,
        native=_WIDE,
        spread=0.2,
    ),
    TinyFamily("gpt_bigcode", "GPTBigCodeForCausalLM", {"model_type": "gpt_bigcode", **_SIZES}, native=_WIDE),
    TinyFamily(
        "gpt_bigcode_heads",
        "GPTBigCodeForCausalLM",
        {"model_type": "gpt_bigcode", **_SIZES, "n_inner": 88, "multi_query": False},
        native=_WIDE,
    ),
    TinyFamily(
        "gpt_neo",
        "GPTNeoForCausalLM",
        {
            "model_type": "gpt_neo",
            **_NEO,
            "attention_types": [[["global", "local"], 1], [["local"], 1]],
            "window_size": 12,
        },
        native={"hidden_size": 64},
        spread=0.2,
    ),
    TinyFamily("gpt_neox", "GPTNeoXForCausalLM", {**_NEOX, "rotary_pct": 0.3}, native={"hidden_size": 64}),
    TinyFamily(
        "gpt_neox_serial",
        "GPTNeoXForCausalLM",
        {
            **_NEOX,
            "use_parallel_residual": False,
            "attention_bias": False,
            "rotary_pct": 1.0,
            "rotary_emb_base": 5000,
            "hidden_act": "gelu_new",
        },
        native={"hidden_size": 64},
    ),
    TinyFamily(
        "gpt_neox_scaled",
        "GPTNeoXForCausalLM",
        {
            **_NEOX,
            "rotary_pct": 0.5,
            "rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2.0},
            "tie_word_embeddings": True,
        },
        native={"hidden_size": 64},
    ),
    TinyFamily("gptj", "GPTJForCausalLM", {"model_type": "gptj", **_SIZES, "rotary_dim": 12}, native=_WIDE),
    TinyFamily("codegen", "CodeGenForCausalLM", {"model_type": "codegen", **_SIZES, "rotary_dim": 8}, native=_WIDE),
    TinyFamily(
        "codegen_eight",
        "CodeGenForCausalLM",
        {"model_type": "codegen", **_SIZES, "n_head": 8, "rotary_dim": 10, "n_inner": 88},
        native={"n_embd": 128},
    ),
    TinyFamily(
        "jais",
        "JAISLMHeadModel",
        {
            "model_type": "jais",
            **_SIZES,
            "n_head": 5,
            "n_inner": 88,
            "position_embedding_type": "alibi",
            "activation_function": "swiglu",
            "embeddings_scale": 3.0,
            "width_scale": 0.4,
            "mup_scale_qk_dot_prod": True,
        },
        reference=jais.Jais,
        save=transposed,
        native=_WIDE | {"n_head": 4},
    ),
    TinyFamily(
        "jais_family",
        "JAISLMHeadModel",
        {
            "model_type": "jais",
            **_SIZES,
            "position_embedding_type": "alibi",
            "activation_function": "gelu",
            "mup_embeddings_scale": 2.0,
            "mup_output_alpha": 1.5,
            "mup_width_scale": 0.5,
            "scale_attn_by_inverse_layer_idx": True,
        },
        reference=jais.Jais,
        save=transposed,
        native=_WIDE,
    ),
]
