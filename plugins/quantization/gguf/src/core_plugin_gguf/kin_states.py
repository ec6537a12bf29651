"""State spaces, alone and in hybrids: Mamba, Falcon-H1, Jamba, Granite's hybrids, Nemotron-H. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_gguf.architecture import Architecture
from core_plugin_gguf.kin_llama import ATTENTION, FACTORS, MODEL, PAIRED
from core_plugin_gguf.mixtures import GROUPED
from core_plugin_gguf.reads import integer, number
from core_plugin_gguf.states import falcon_h1, flat, granite_hybrid, jamba, kernel, mamba, mamba2, nemotron_h

_BACKBONE: Mapping[str, str] = {
    "token_embd": "backbone.embeddings",
    "output_norm": "backbone.norm_f",
    "output": "lm_head",
}
_FINAL: Mapping[str, str] = {**MODEL, "output_norm": "model.final_layernorm"}
_SILU = {"hidden_act": "silu"}
_BARE = frozenset({"ssm_a", "ssm_d"})
_HEADS: Mapping[str, Any] = {
    "decays": frozenset({"ssm_a"}),
    "shapes": {"ssm_conv1d": kernel, "ssm_a": flat, "ssm_d": flat, "ssm_norm": flat},
    "bare": _BARE | {"ssm_dt"},
}
"""How Mamba-2's numbers of heads and its norm are stored."""


def _mixer(path: str) -> dict[str, str]:
    """Return the modules of Mamba-2 below a module."""
    names = {"in": "in_proj", "conv1d": "conv1d", "dt": "dt_bias", "a": "A_log", "d": "D", "norm": "norm"}
    return {f"ssm_{own}": f"{path}.{name}" for own, name in {**names, "out": "out_proj"}.items()}


def _first_mixer(path: str) -> dict[str, str]:
    """Return the modules of the first Mamba below a module."""
    found = {**_mixer(path), "ssm_x": f"{path}.x_proj", "ssm_dt": f"{path}.dt_proj"}
    return {own: name for own, name in found.items() if own != "ssm_norm"}


def _mlp(path: str) -> dict[str, str]:
    return {f"ffn_{part}": f"{path}.{part}_proj" for part in ("gate", "up", "down")}


_NORMED = {"attn_norm": "input_layernorm", "ffn_norm": "pre_ff_layernorm"}
_HYBRID: Mapping[str, Any] = {"uneven": True, "values": _SILU}
_NEMOTRON: Mapping[str, Any] = {
    "model": "NemotronHForCausalLM",
    "model_type": "nemotron_h",
    "modules": _BACKBONE,
    "layer": "backbone.layers.{}",
    "eps": "layer_norm_epsilon",
    "values": {"mlp_hidden_act": "relu2"},
    "rotates": False,
    "uneven": True,
    **_HEADS,
}
_NEMOTRON_BLOCKS: Mapping[str, str] = {
    "attn_norm": "norm",
    **_mixer("mixer"),
    **{name: path.replace("self_attn", "mixer") for name, path in ATTENTION.items()},
    "ffn_up": "mixer.up_proj",
    "ffn_down": "mixer.down_proj",
}
_JAMBA_EXPERTS = {f"ffn_{part}_exps": f"feed_forward.experts.{{}}.{part}_proj" for part in ("gate", "up", "down")}
_GRANITE_EXPERTS: Mapping[str, str] = {
    "ffn_gate_exps": "block_sparse_moe.{}.gate_proj",
    "ffn_up_exps": "block_sparse_moe.{}.up_proj",
    "ffn_down_exps": "block_sparse_moe.{}.output_linear",
}

STATES_KIN: Mapping[str, Architecture] = {
    "mamba": Architecture(
        model="MambaForCausalLM",
        model_type="mamba",
        blocks={"attn_norm": "norm", **_first_mixer("mixer")},
        modules=_BACKBONE,
        layer="backbone.layers.{}",
        eps="layer_norm_epsilon",
        values=_SILU,
        reads=(mamba,),
        rotates=False,
        attends=False,
        decays=frozenset({"ssm_a"}),
        shapes={"ssm_conv1d": kernel},
        bare=_BARE,
    ),
    "mamba2": Architecture(
        model="Mamba2ForCausalLM",
        model_type="mamba2",
        blocks={"attn_norm": "norm", **_mixer("mixer")},
        modules=_BACKBONE,
        layer="backbone.layers.{}",
        eps="layer_norm_epsilon",
        values=_SILU,
        reads=(mamba2,),
        rotates=False,
        attends=False,
        **_HEADS,
    ),
    "falcon-h1": Architecture(
        model="FalconH1ForCausalLM",
        model_type="falcon_h1",
        blocks={**_NORMED, **ATTENTION, **_mixer("mamba"), **_mlp("feed_forward")},
        modules=_FINAL,
        values=_SILU,
        reads=(falcon_h1,),
        unsuffixed=frozenset({"ffn_norm"}),
        **_HEADS,
    ),
    "jamba": Architecture(
        model="JambaForCausalLM",
        model_type="jamba",
        blocks={
            **_NORMED,
            **ATTENTION,
            **_first_mixer("mamba"),
            "ssm_dt_norm": "mamba.dt_layernorm",
            "ssm_b_norm": "mamba.b_layernorm",
            "ssm_c_norm": "mamba.c_layernorm",
            **_mlp("feed_forward"),
            "ffn_gate_inp": "feed_forward.router",
        },
        modules=_FINAL,
        reads=(jamba,),
        rotates=False,
        stacked=_JAMBA_EXPERTS,
        experts=True,
        decays=frozenset({"ssm_a"}),
        shapes={"ssm_conv1d": kernel},
        bare=_BARE,
        **_HYBRID,
    ),
    "granitehybrid": Architecture(
        model="GraniteMoeHybridForCausalLM",
        model_type="granitemoehybrid",
        blocks={
            "attn_norm": "input_layernorm",
            "ffn_norm": "post_attention_layernorm",
            **ATTENTION,
            **_mixer("mamba"),
            "ffn_gate": "shared_mlp.gate_proj",
            "ffn_up": "shared_mlp.up_proj",
            "ffn_down": "shared_mlp.output_linear",
            "ffn_gate_inp": "block_sparse_moe.router.layer",
            "ffn_gate_shexp": "shared_mlp.gate_proj",
            "ffn_up_shexp": "shared_mlp.up_proj",
            "ffn_down_shexp": "shared_mlp.output_linear",
        },
        modules=MODEL,
        reads=(*FACTORS, granite_hybrid),
        partial="partial_rotary_factor",
        paired=PAIRED,
        stacked=_GRANITE_EXPERTS,
        experts=True,
        **_HEADS,
        **_HYBRID,
    ),
    "nemotron_h": Architecture(blocks=_NEMOTRON_BLOCKS, reads=(nemotron_h,), **_NEMOTRON),
    "nemotron_h_moe": Architecture(
        blocks={
            **_NEMOTRON_BLOCKS,
            "ffn_gate_inp": "mixer.gate",
            "exp_probs_b": "mixer.gate.e_score_correction_bias",
            "ffn_up_shexp": "mixer.shared_experts.up_proj",
            "ffn_down_shexp": "mixer.shared_experts.down_proj",
            "ffn_latent_down": "mixer.fc1_latent_proj",
            "ffn_latent_up": "mixer.fc2_latent_proj",
        },
        reads=(
            *GROUPED,
            integer("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"),
            number("moe_latent_size", "moe_latent_size"),
            nemotron_h,
        ),
        stacked={"ffn_up_exps": "mixer.experts.{}.up_proj", "ffn_down_exps": "mixer.experts.{}.down_proj"},
        experts=True,
        **{**_NEMOTRON, "bare": _NEMOTRON["bare"] | {"exp_probs_b"}},
    ),
}
