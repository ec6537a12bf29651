"""Architectures with Llama's names whose norms subtract the mean, or whose projections are fused."""

from __future__ import annotations

from collections.abc import Mapping

from core_plugin_gguf.architecture import Architecture
from core_plugin_gguf.kin_llama import ATTENTION, BLOCKS, MLP, MODEL, NORMS, QK_NORMS
from core_plugin_gguf.reads import flag, glm, number, present, window

_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_GATE_UP: Mapping[str, str] = {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"}
_UNGATED: Mapping[str, str] = {"ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_PARALLEL: Mapping[str, str] = {"attn_norm": "input_layernorm", **ATTENTION, **MLP}
_SILU = {"hidden_act": "silu"}
_BIASES = (present("attn_q.bias", "attention_bias"), present("ffn_up.bias", "mlp_bias"))

NORMS_KIN: Mapping[str, Architecture] = {
    "command-r": Architecture(
        model="CohereForCausalLM",
        model_type="cohere",
        blocks={**_PARALLEL, **QK_NORMS},
        modules=MODEL,
        layer_norm=True,
        eps="layer_norm_eps",
        values=_SILU,
        reads=(*_BIASES, number("logit_scale", "logit_scale"), present("attn_q_norm.weight", "use_qk_norm")),
    ),
    "cohere2": Architecture(
        model="Cohere2ForCausalLM",
        model_type="cohere2",
        blocks=_PARALLEL,
        modules=MODEL,
        layer_norm=True,
        eps="layer_norm_eps",
        values=_SILU,
        reads=(*_BIASES, number("logit_scale", "logit_scale"), window(4)),
    ),
    "orion": Architecture(
        model="OrionForCausalLM",
        model_type="orion",
        blocks=BLOCKS,
        modules=MODEL,
        layer_norm=True,
        values=_SILU,
        reads=_BIASES,
    ),
    "jais2": Architecture(
        model="Jais2ForCausalLM",
        model_type="jais2",
        blocks={**NORMS, **ATTENTION, **_UNGATED},
        modules=MODEL,
        layer_norm=True,
        eps="layer_norm_eps",
        values={"hidden_act": "relu2"},
        reads=_BIASES,
    ),
    "stablelm": Architecture(
        model="StableLmForCausalLM",
        model_type="stablelm",
        blocks=BLOCKS,
        modules=MODEL,
        layer_norm=True,
        eps="layer_norm_eps",
        partial="partial_rotary_factor",
        stacked={
            "attn_q_norm": "self_attn.q_layernorm.norms.{}",
            "attn_k_norm": "self_attn.k_layernorm.norms.{}",
        },
        values=_SILU,
        reads=(
            present("attn_q.bias", "use_qkv_bias"),
            present("attn_q_norm.weight", "qk_layernorm"),
            # Of the two kinds, only sequential layers have a norm before the MLP.
            flag("use_parallel_residual", "use_parallel_residual", default=True),
        ),
    ),
    "starcoder2": Architecture(
        model="Starcoder2ForCausalLM",
        model_type="starcoder2",
        blocks={**NORMS, **ATTENTION, "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
        modules=MODEL,
        layer_norm=True,
        eps="norm_epsilon",
        values={"hidden_act": "gelu_pytorch_tanh"},
        reads=(present("attn_q.bias", "use_bias"), window()),
    ),
    "nemotron": Architecture(
        model="NemotronForCausalLM",
        model_type="nemotron",
        blocks={**NORMS, **ATTENTION, **_UNGATED},
        modules=MODEL,
        layer_norm=True,
        eps="norm_eps",
        partial="partial_rotary_factor",
        norm_offset=1.0,
        values={"hidden_act": "relu2"},
        reads=_BIASES,
    ),
    "apertus": Architecture(
        model="ApertusForCausalLM",
        model_type="apertus",
        blocks={
            **ATTENTION,
            **_UNGATED,
            **QK_NORMS,
            "attn_norm": "attention_layernorm",
            "ffn_norm": "feedforward_layernorm",
        },
        modules=MODEL,
        values={"hidden_act": "xielu"},
        reads=_BIASES,
    ),
    "phi2": Architecture(
        model="PhiForCausalLM",
        model_type="phi",
        blocks={
            "attn_norm": "input_layernorm",
            **ATTENTION,
            "attn_output": "self_attn.dense",
            "ffn_up": "mlp.fc1",
            "ffn_down": "mlp.fc2",
        },
        modules={**MODEL, "output_norm": "model.final_layernorm"},
        layer_norm=True,
        eps="layer_norm_eps",
        partial="partial_rotary_factor",
        split={"attn_qkv": _QKV},
        values={"hidden_act": "gelu_new", "qk_layernorm": False},
    ),
    "phi3": Architecture(
        model="Phi3ForCausalLM",
        model_type="phi3",
        blocks={**NORMS, "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj", **_GATE_UP},
        modules=MODEL,
        partial="partial_rotary_factor",
        values=_SILU,
        reads=(window(),),
    ),
    "glm4": Architecture(
        model="Glm4ForCausalLM",
        model_type="glm4",
        blocks={
            **NORMS,
            **ATTENTION,
            **_GATE_UP,
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
        },
        modules=MODEL,
        partial="partial_rotary_factor",
        split={"attn_qkv": _QKV},
        values=_SILU,
        reads=(glm,),
    ),
    "chatglm": Architecture(
        model="GlmForCausalLM",
        model_type="glm",
        blocks={**NORMS, **ATTENTION, **_GATE_UP},
        modules=MODEL,
        partial="partial_rotary_factor",
        split={"attn_qkv": _QKV},
        values=_SILU,
        reads=(glm,),
    ),
    "plamo3": Architecture(
        model="Plamo3ForCausalLM",
        model_type="plamo3",
        blocks={
            "attn_norm": "pre_mixer_norm",
            "attn_qkv": "mixer.qkv_proj",
            "attn_output": "mixer.o_proj",
            "attn_q_norm": "mixer.q_norm",
            "attn_k_norm": "mixer.k_norm",
            "post_attention_norm": "post_mixer_norm",
            "ffn_norm": "pre_mlp_norm",
            **_GATE_UP,
            "post_ffw_norm": "post_mlp_norm",
        },
        modules=MODEL,
        layer="model.layers.layers.{}",
        norm_offset=1.0,
        norm_offsets={"post_attention_norm": 1 / 5, "post_ffw_norm": 5**-1.5},
        unsuffixed=frozenset({"post_attention_norm", "post_ffw_norm"}),
        reads=(window(8), number("rope.freq_base_swa", "rope_local_theta", 10000.0)),
    ),
}
