"""Architectures whose layers are Llama's, with what each does differently."""

from __future__ import annotations

from collections.abc import Mapping

from core_plugin_gguf.architecture import Architecture
from core_plugin_gguf.gemma import gemma, gemma3n, gemma4
from core_plugin_gguf.reads import (
    baichuan,
    deci,
    granite,
    mistral,
    mixtral,
    no_rope_layers,
    number,
    olmo3,
    present,
    temperature,
    window,
)

MODEL: Mapping[str, str] = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
ATTENTION: Mapping[str, str] = {
    "attn_output": "self_attn.o_proj",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
}
MLP: Mapping[str, str] = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
NORMS: Mapping[str, str] = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
BLOCKS: Mapping[str, str] = {**NORMS, **ATTENTION, **MLP}
QK_NORMS: Mapping[str, str] = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
POST_NORMS: Mapping[str, str] = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
PAIRED = frozenset({"attn_q", "attn_k"})

_BIASES = (present("attn_q.bias", "attention_bias"), present("ffn_up.bias", "mlp_bias"))
_GEMMA: Mapping[str, str] = {**BLOCKS, **QK_NORMS, **POST_NORMS, "ffn_norm": "pre_feedforward_layernorm"}
_LAYER_INPUT: Mapping[str, str] = {
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
}
_LAYER_INPUTS: Mapping[str, str] = {
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
}
_TANH = {"hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh"}


def _llama(model: str = "LlamaForCausalLM", model_type: str = "llama", **differs: object) -> Architecture:
    """Return Llama with differences."""
    usual = {"blocks": BLOCKS, "modules": MODEL, "reads": _BIASES, "values": {"hidden_act": "silu"}}
    return Architecture(model=model, model_type=model_type, **{**usual, **differs})  # type: ignore[arg-type]


FACTORS = (
    *_BIASES,
    granite,
    number("embedding_scale", "embedding_multiplier", 1.0),
    number("residual_scale", "residual_multiplier", 1.0),
    number("logit_scale", "logits_scaling", 1.0),
)

MIXTRAL = {
    f"ffn_{part}_exps": f"block_sparse_moe.experts.{{}}.{name}"
    for part, name in (("gate", "w1"), ("down", "w2"), ("up", "w3"))
}

LLAMA_KIN: Mapping[str, Architecture] = {
    "llama": _llama(
        paired=PAIRED,
        blocks={**BLOCKS, "ffn_gate_inp": "block_sparse_moe.gate"},
        stacked=MIXTRAL,
        experts=True,
        reads=(*_BIASES, mistral, mixtral),
    ),
    "mistral3": _llama("Ministral3ForCausalLM", "ministral3", paired=PAIRED, reads=(*_BIASES, temperature)),
    "llama-embed": _llama("LlamaModel", paired=PAIRED, values={"hidden_act": "silu", "is_causal": False}),
    "qwen2": _llama("Qwen2ForCausalLM", "qwen2"),
    "qwen3": _llama("Qwen3ForCausalLM", "qwen3", blocks={**BLOCKS, **QK_NORMS}),
    # Models of Llama's form under names of their own, which their converters have put into its order.
    "baichuan": _llama(paired=PAIRED, reads=(*_BIASES, baichuan)),
    "internlm2": _llama(paired=PAIRED),
    "xverse": _llama(paired=PAIRED),
    "exaone": _llama(),
    "pangu-embedded": _llama(),
    "granite": _llama("GraniteForCausalLM", "granite", paired=PAIRED, reads=FACTORS),
    "minicpm": _llama("GraniteForCausalLM", "granite", paired=PAIRED, reads=FACTORS),
    "deci": _llama(
        "DeciLMForCausalLM",
        "nemotron-nas",
        paired=PAIRED,
        reads=(*_BIASES, deci),
        uneven=True,
        linear="self_attn.linear_attn",
    ),
    "arcee": _llama("ArceeForCausalLM", "arcee", paired=PAIRED, values={"hidden_act": "relu2"}),
    "smollm3": _llama(
        "SmolLM3ForCausalLM", "smollm3", paired=PAIRED, reads=(*_BIASES, no_rope_layers), values={"hidden_act": "silu"}
    ),
    "ernie4_5": _llama("Ernie4_5ForCausalLM", "ernie4_5", reads=(present("attn_q.bias", "use_bias"),)),
    "seed_oss": _llama(
        "SeedOssForCausalLM",
        "seed_oss",
        blocks={**BLOCKS, "post_attention_norm": "post_attention_layernorm"},
        reads=(*_BIASES, present("attn_output.bias", "attention_out_bias")),
    ),
    "hunyuan-dense": _llama(
        "HunYuanDenseV1ForCausalLM",
        "hunyuan_v1_dense",
        blocks={**BLOCKS, "attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
    ),
    "olmo": _llama(
        "OlmoForCausalLM",
        "olmo",
        blocks={**ATTENTION, **MLP},
        eps=None,
        paired=PAIRED,
        reads=(*_BIASES, number("attention.clamp_kqv", "clip_qkv")),
    ),
    "olmo2": _llama(
        "Olmo2ForCausalLM",
        "olmo2",
        blocks={**ATTENTION, **MLP, **QK_NORMS, **POST_NORMS},
        reads=(*_BIASES, olmo3),
    ),
    "exaone4": _llama(
        "Exaone4ForCausalLM",
        "exaone4",
        blocks={**ATTENTION, **MLP, **QK_NORMS, **POST_NORMS},
        reads=(window(4),),
    ),
    "gemma": _llama("GemmaForCausalLM", "gemma", values=_TANH, norm_offset=1.0),
    "gemma2": _llama(
        "Gemma2ForCausalLM", "gemma2", blocks=_GEMMA, values=_TANH, reads=(*_BIASES, gemma), norm_offset=1.0
    ),
    "gemma4": _llama(
        "Gemma4ForCausalLM",
        "gemma4_text",
        blocks={
            **_GEMMA,
            **_LAYER_INPUT,
            "layer_output_scale": "layer_scalar",
        },
        modules={**MODEL, **_LAYER_INPUTS},
        values=_TANH,
        rotates=False,
        bare=frozenset({"layer_output_scale"}),
        head="attention.key_length_swa",
        reads=(*_BIASES, gemma4),
    ),
    "gemma3n": _llama(
        "Gemma3nForCausalLM",
        "gemma3n_text",
        blocks={
            **_GEMMA,
            **_LAYER_INPUT,
            "altup_correct_coef": "altup.correction_coefs",
            "altup_correct_scale": "altup.correct_output_scale",
            "altup_predict_coef": "altup.prediction_coefs",
            "altup_router": "altup.modality_router",
            "altup_router_norm": "altup.router_norm",
            "laurel_l": "laurel.linear_left",
            "laurel_r": "laurel.linear_right",
            "laurel_post_norm": "laurel.post_laurel_norm",
        },
        modules={
            **MODEL,
            **_LAYER_INPUTS,
            "altup_proj": "model.altup_projections.{}",
            "altup_unembd_proj": "model.altup_unembed_projections.{}",
        },
        values=_TANH,
        bare=frozenset({"altup_correct_scale"}),
        reads=(*_BIASES, gemma3n),
    ),
    "gemma-embedding": _llama(
        "Gemma3TextModel",
        "gemma3_text",
        blocks=_GEMMA,
        modules={"token_embd": "embed_tokens", "output_norm": "norm"},
        layer="layers.{}",
        values={**_TANH, "use_bidirectional_attention": True},
        reads=(*_BIASES, gemma),
        norm_offset=1.0,
    ),
    "gemma3": _llama(
        "Gemma3ForCausalLM", "gemma3_text", blocks=_GEMMA, values=_TANH, reads=(*_BIASES, gemma), norm_offset=1.0
    ),
}
