"""Which rows with state spaces or linear attention become GGUF files, and what their converters do."""

from __future__ import annotations

import re

import numpy as np
from gguf import MODEL_ARCH as ARCH
from gguf import ExpertGatingFuncType as Gating
from gguf_mixtures import COUNTS, each_expert, granite, moe
from ggufs import Form, add_rotary_dimensions

from core_testing.families import TinyFamily

SIZES = {
    "conv_kernel": ("conv_kernel", "mamba_d_conv", "linear_conv_kernel_dim"),
    "state_size": ("state_size", "ssm_state_size", "mamba_d_state", "linear_key_head_dim"),
    "group_count": ("n_groups", "mamba_n_groups", "linear_num_key_heads"),
    "time_step_rank": ("mamba_num_heads", "mamba_n_heads", "num_heads", "linear_num_value_heads"),
}


def spaces(writer, config, prefix):
    """Sizes of a mixer with heads."""
    for key, names in SIZES.items():
        writer.add_uint32(f"{prefix}.ssm.{key}", config(*names))
    size = config("mamba_head_dim", "mamba_d_head", "linear_value_head_dim", default=config.head_dim)
    inner = config("mamba_d_ssm", default=config(*SIZES["time_step_rank"]) * size)
    writer.add_ssm_inner_size(inner)


def nothing_but(writer, config):
    """Say that there is no attention and no MLP."""
    writer.add_head_count(0)
    writer.add_feed_forward_length(0)
    writer.add_context_length(2**20)
    writer.add_layer_norm_rms_eps(config("layer_norm_epsilon"))


def mamba(writer, config, prefix):
    nothing_but(writer, config)
    first(writer, config, prefix)
    writer.add_ssm_dt_b_c_rms(config("model_type") == "falcon_mamba")


def first(writer, config, prefix):
    writer.add_ssm_conv_kernel(config("conv_kernel", "mamba_d_conv"))
    writer.add_ssm_inner_size(config("intermediate_size") if config("state_size") else 2 * config.hidden)
    writer.add_ssm_state_size(config("state_size", "mamba_d_state"))
    writer.add_ssm_time_step_rank(config("time_step_rank", "mamba_dt_rank"))


def mamba2(writer, config, prefix):
    nothing_but(writer, config)
    spaces(writer, config, prefix)


def some(config, layers):
    """Return the heads of keys of each layer: none where it does not attend."""
    return [config.kv_heads if layer in layers else 0 for layer in range(config.layers)]


def jamba(writer, config, prefix):
    first(writer, config, prefix)
    moe(writer, config, prefix)
    period, offset = config("attn_layer_period"), config("attn_layer_offset")
    writer.add_head_count_kv(some(config, range(offset, config.layers, period)))


def falcon_h1(writer, config, prefix):
    spaces(writer, config, prefix)


def bamba(writer, config, prefix):
    spaces(writer, config, prefix)
    writer.add_head_count_kv(some(config, config("attn_layer_indices")))
    writer.add_rope_scaling_finetuned(True)
    add_rotary_dimensions(writer, config, prefix)


def granite_hybrid(writer, config, prefix):
    spaces(writer, config, prefix)
    granite(writer, config, prefix)
    writer.add_head_count_kv(some(config, listed(config, "full_attention")))
    writer.add_rope_scaling_finetuned(False)


def listed(config, kind):
    """Return the layers of a kind."""
    return [layer for layer, one in enumerate(config("layer_types")) if one == kind]


def nemotron_h(writer, config, prefix):
    """Heads and sizes of each layer, of which it has one kind."""
    spaces(writer, config, prefix)
    kinds = config("layer_types", "layers_block_type")
    writer.add_head_count_kv([config.kv_heads if kind == "full_attention" else 0 for kind in kinds])
    size = config("moe_intermediate_size") if "moe" in kinds else config("intermediate_size")
    sized = "moe" if "moe" in kinds else "mlp"
    writer.add_feed_forward_length([size if kind == sized else 0 for kind in kinds])


def nemotron_experts(writer, config, prefix):
    nemotron_h(writer, config, prefix)
    counts = {key: names for key, names in COUNTS.items() if key not in ("expert_group_used_count",)}
    for key, names in counts.items():
        if (value := config(*names)) is not None:
            writer.add_uint32(f"{prefix}.{key}", value)
    writer.add_expert_shared_feed_forward_length(config("moe_shared_expert_intermediate_size"))
    writer.add_expert_weights_norm(config("norm_topk_prob"))
    writer.add_expert_weights_scale(config("routed_scaling_factor"))
    if config("moe_latent_size") is not None:
        writer.add_uint32(f"{prefix}.moe_latent_size", config("moe_latent_size"))


def delta(writer, config, prefix):
    spaces(writer, config, prefix)
    moe(writer, config, prefix)
    writer.add_uint32(f"{prefix}.full_attention_interval", 4)
    add_rotary_dimensions(writer, config, prefix)


def lfm2(writer, config, prefix):
    writer.add_head_count_kv(some(config, listed(config, "full_attention")))
    writer.add_shortconv_l_cache(config("conv_L_cache"))
    writer.add_layer_norm_rms_eps(config("norm_eps"))
    if config("num_experts") is not None:
        writer.add_leading_dense_block_count(config("num_dense_layers"))
        writer.add_expert_gating_func(Gating.SIGMOID)
        moe(writer, config, prefix)
    elif config("block_auto_adjust_ff_dim"):
        multiple = config("block_multiple_of")
        writer.add_feed_forward_length(-(-int(2 * config("intermediate_size") / 3) // multiple) * multiple)


def kimi_linear(writer, config, prefix):
    moe(writer, config, prefix)
    kept, rotated = config("kv_lora_rank"), config("qk_rope_head_dim")
    writer.add_head_count_kv([1 if layer in listed(config, "full_attention") else 0 for layer in range(config.layers)])
    writer.add_ssm_conv_kernel(config("linear_conv_kernel_dim"))
    writer.add_uint32(f"{prefix}.kda.head_dim", config("linear_head_dim"))
    writer.add_kv_lora_rank(kept)
    writer.add_rope_dimension_count(rotated)
    writer.add_key_length(kept + rotated)
    writer.add_value_length(kept)
    writer.add_key_length_mla(config("qk_nope_head_dim") + rotated)
    writer.add_value_length_mla(config("v_head_dim"))
    writer.add_expert_gating_func(Gating.SIGMOID)
    writer.add_expert_weights_scale(config("routed_scaling_factor"))
    writer.add_leading_dense_block_count(config("first_k_dense_replace", default=1))


def decayed(name, value, config):
    """What converters do with every state space."""
    if name.endswith("A_log"):
        value = -np.exp(value)
    if name.endswith(("conv1d.weight", "conv.conv.weight")):
        value = value.squeeze(1)
    return [(name.replace(".dt_bias", ".dt_proj.bias"), value)]


def of_heads(name, value, config):
    """A number of each head has a dimension of its own, and the norm a row for each group."""
    ((renamed, value),) = decayed(name, value, config)
    if name.endswith(("A_log", ".D")):
        value = value.reshape(-1, 1)
    if name.endswith(("mixer.norm.weight", "mamba.norm.weight")):
        value = value.reshape(config("n_groups", "mamba_n_groups"), -1)
    return [(renamed, value)]


def of_falcon(name, value, config):
    """The factors are in the weights; the norm before the MLP loses its suffix."""
    ((renamed, value),) = of_heads(name, value, config)
    gate, down = config("mlp_multipliers", default=(1, 1))
    into = config("attention_in_multiplier")
    factors = {
        "down_proj": down,
        "gate_proj": gate,
        "k_proj": config("key_multiplier") * into,
        "q_proj": into,
        "v_proj": into,
        "o_proj": config("attention_out_multiplier"),
        "out_proj": config("ssm_out_multiplier"),
        "in_proj": config("ssm_in_multiplier"),
        "lm_head": config("lm_head_multiplier"),
        "embed_tokens": config("embedding_multiplier"),
    }
    factor = next((factors[part] for part in reversed(name.split(".")) if part in factors), 1)
    if name.endswith("in_proj.weight"):
        inner, shared = config("mamba_d_ssm"), config("mamba_n_groups") * config("mamba_d_state")
        rows = (inner, inner, shared, shared, config("mamba_n_heads"))
        factor = factor * np.repeat(config("ssm_multipliers", default=[1] * 5), rows)[:, None]
    return [(renamed, value * np.float32(factor) if np.ndim(factor) == 0 else (value * factor).astype(np.float32))]


def of_granite(name, value, config):
    """Gate and up apart; of models without experts, the MLP of all tokens is the MLP."""
    layer = re.search(r"layers\.(\d+)\.", name)
    block = f"blk.{layer[1]}" if layer else ""
    experts = bool(config("num_local_experts"))
    if "shared_mlp" in name:
        ending = "_shexp" if experts else ""
        if "output_linear" in name:
            return [(f"{block}.ffn_down{ending}.weight", value)]
        gate, up = np.split(value, 2)
        return [(f"{block}.ffn_gate{ending}.weight", gate), (f"{block}.ffn_up{ending}.weight", up)]
    if name.endswith("block_sparse_moe.input_linear.weight"):
        gate, up = np.split(value, 2, axis=1)
        return [(f"{block}.ffn_gate_exps.weight", gate), (f"{block}.ffn_up_exps.weight", up)]
    return of_heads(name, value, config)


def corrected(name, value, config):
    """The bias of the choice is one of a module."""
    ((renamed, value),) = of_heads(name, value, config)
    return [(re.sub(r"(e_score_correction|expert)_bias$", r"\1.bias", renamed), value)]


def of_nemotron(writer, tensors):
    found = each_expert(writer, tensors)
    return {re.sub(r"backbone(.*)mixer\.experts", r"model\1mlp.experts", name): value for name, value in found.items()}


def of_lfm2(name, value, config):
    ((renamed, value),) = decayed(name, value, config)
    return [(renamed.replace(".expert_bias", ".expert_bias.bias"), value)]


def lfm2_experts(writer, tensors):
    parts = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    found = each_expert(writer, tensors)
    pattern = r"feed_forward\.experts\.(w\d)"
    return {re.sub(pattern, lambda one: f"mlp.experts.{parts[one[1]]}", name): value for name, value in found.items()}


def raised(name, value, config):
    """Norms with 1 added, but for those of heads; a row of one output has lost that dimension."""
    ((renamed, value),) = decayed(name, value, config)
    if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        value = value + 1
    return [(renamed, value.reshape(-1) if name.endswith("shared_expert_gate.weight") else value)]


def apart(name, value, config):
    """Queries, keys and values of all heads one after another; the gates are a matrix of their own."""
    if "in_proj_qkvz" not in name:
        return raised(name, value, config)
    keys, heads = config("linear_num_key_heads"), config("linear_num_value_heads")
    size, wide = config("linear_key_head_dim"), heads // keys * config("linear_value_head_dim")
    groups = value.reshape(keys, -1, value.shape[1])
    q, k, v, z = (part.reshape(-1, value.shape[1]) for part in np.split(groups, np.cumsum([size, size, wide]), axis=1))
    block = f"blk.{name.split('.')[2]}"
    return [(f"{block}.attn_qkv.weight", np.concatenate([q, k, v])), (f"{block}.attn_gate.weight", z)]


def dealt(name, value, config):
    """The first head of values of each head of keys, then the second one of each."""
    keys, size = config("linear_num_key_heads"), config("linear_value_head_dim")
    share = config("linear_num_value_heads") // keys
    first = 2 * keys * config("linear_key_head_dim")

    def order(rows, each):
        return rows.reshape(keys, share, each, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)

    if "in_proj_qkv." in name or "linear_attn.conv1d" in name:
        value = np.concatenate([value[:first], order(value[first:], size)])
    elif "in_proj_z" in name:
        value = order(value, size)
    elif name.endswith(("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias")):
        value = order(value, 1)
    elif "linear_attn.out_proj" in name:
        value = order(value.T, size).T
    return raised(name, value, config)


def of_kimi(name, value, config):
    """Keys and values of latent attention apart; the convolution's weights, and dense layers under their usual name."""
    if name.endswith("kv_b_proj.weight"):
        heads = value.reshape(config.heads, -1, value.shape[1])
        keys, values = np.split(heads, [config("qk_nope_head_dim")], axis=1)
        return [(name.replace("kv_b", "k_b"), keys.swapaxes(1, 2)), (name.replace("kv_b", "v_b"), values)]
    if name.endswith("A_log"):
        return [(name, -np.exp(value))]
    if name.endswith("conv1d.weight"):
        return [(name, value.reshape(1, value.shape[0], 1, -1))]
    usual = re.sub(r"block_sparse_moe\.((gate|up|down)_proj)", r"mlp.\1", name)
    usual = usual.replace("correction_bias", "correction.bias")
    return [(usual.replace(".dt_bias", ".dt_proj.bias"), value)]


MINIMAX = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.out_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.output_gate": "attn_gate",
    "self_attn.norm": "attn_norm_2",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "block_sparse_moe.gate": "ffn_gate_inp",
}


def minimax(writer, config, prefix):
    moe(writer, config, prefix)
    writer.add_residual_scale(config("mlp_alpha_factor"))
    add_rotary_dimensions(writer, config, prefix)


def of_minimax(name, value, config):
    """The names of its files, which the library does not know."""
    outer = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    module = name.removesuffix(".weight")
    if module in outer:
        return [(f"{outer[module]}.weight", value)]
    _, _, number, module = module.split(".", 3)
    block = f"blk.{number}"
    if ".experts." in module:
        return [(f"{block}.{module.removeprefix('block_sparse_moe.')}", value)]
    return [(f"{block}.{MINIMAX[module]}.weight", value)] if module in MINIMAX else []


def minimax_experts(writer, tensors):
    parts = {
        "experts.w1": "ffn_gate_exps.weight",
        "experts.w2": "ffn_down_exps.weight",
        "experts.w3": "ffn_up_exps.weight",
    }
    pattern = r"experts\.w\d"
    return {re.sub(pattern, lambda one: parts[one[0]], name): one for name, one in each_expert(writer, tensors).items()}


FORMS = {
    "MiniMaxForCausalLM": Form("minimax-01", minimax, of_minimax, minimax_experts),
    "MambaForCausalLM": Form(ARCH.MAMBA, mamba, decayed, saved=True),
    "FalconMambaForCausalLM": Form(ARCH.MAMBA, mamba, decayed, saved=True),
    "Mamba2ForCausalLM": Form(ARCH.MAMBA2, mamba2, of_heads, saved=True),
    "JambaForCausalLM": Form(ARCH.JAMBA, jamba, decayed, each_expert, saved=True),
    "FalconH1ForCausalLM": Form(ARCH.FALCON_H1, falcon_h1, of_falcon, saved=True),
    "BambaForCausalLM": Form(ARCH.GRANITE_HYBRID, bamba, of_heads, saved=True),
    "GraniteMoeHybridForCausalLM": Form(ARCH.GRANITE_HYBRID, granite_hybrid, of_granite, saved=True),
    "NemotronHForCausalLM": Form(ARCH.NEMOTRON_H_MOE, nemotron_experts, corrected, of_nemotron, saved=True),
    "nemotron_h_dense": Form(ARCH.NEMOTRON_H, nemotron_h, of_heads, saved=True),
    "Qwen3NextForCausalLM": Form(ARCH.QWEN3NEXT, delta, apart, each_expert, saved=True),
    "qwen3_next_older": Form(ARCH.QWEN3NEXT, delta, raised, each_expert, saved=True),
    "Qwen3_5ForCausalLM": Form(ARCH.QWEN35, delta, dealt, saved=True),
    "Qwen3_5MoeForCausalLM": Form(ARCH.QWEN35MOE, delta, dealt, each_expert, saved=True),
    "Lfm2ForCausalLM": Form(ARCH.LFM2, lfm2, of_lfm2, saved=True),
    "Lfm2MoeForCausalLM": Form(ARCH.LFM2MOE, lfm2, of_lfm2, lfm2_experts, saved=True),
    "KimiLinearForCausalLM": Form(ARCH.KIMI_LINEAR, kimi_linear, of_kimi, each_expert, saved=True),
}
"""Architecture of a row, or name of a row with a form of its own -> its form."""

_MAMBA = {"mamba_n_heads": 8, "mamba_d_state": 12, "mamba_chunk_size": 16, "mamba_n_groups": 2}
_NEMOTRON = {
    "model_type": "nemotron_h",
    "num_hidden_layers": None,
    "ssm_state_size": 12,
    "mamba_num_heads": 8,
    "mamba_head_dim": 14,
    "n_groups": 2,
    "chunk_size": 16,
    "head_dim": 20,
}
_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 20,
    "num_hidden_layers": 4,
    "head_dim": 24,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
}
MINIMAX_FACTORS = {
    **{f"{part}_alpha_factor": 1.5 for part in ("full_attn", "linear_attn", "mlp")},
    **{f"{part}_beta_factor": 1.0 for part in ("full_attn", "linear_attn", "mlp")},
}
"""What makes a row of MiniMax-Text one that files can tell."""
FURTHER = [
    TinyFamily(
        "falcon_h1_gated",
        "FalconH1ForCausalLM",
        {
            "model_type": "falcon_h1",
            "mamba_d_ssm": 96,
            **_MAMBA,
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": False,
            "attention_bias": True,
        },
    ),
    TinyFamily(
        "granite_hybrid_plain",
        "GraniteMoeHybridForCausalLM",
        {
            "model_type": "granitemoehybrid",
            **_MAMBA,
            "layer_types": ["full_attention", "linear_attention", "linear_attention"],
            "num_local_experts": 0,
            "intermediate_size": 56,
            "shared_intermediate_size": 56,
            "position_embedding_type": "nope",
            "attention_multiplier": 0.2,
        },
    ),
    TinyFamily(
        "nemotron_h_experts",
        "NemotronHForCausalLM",
        {
            **_NEMOTRON,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "moe", "linear_attention"],
            "n_routed_experts": 6,
            "num_experts_per_tok": 2,
            "routed_scaling_factor": 1.5,
            "moe_intermediate_size": 24,
            "moe_shared_expert_intermediate_size": 36,
        },
    ),
    TinyFamily(
        "nemotron_h_dense",
        "NemotronHForCausalLM",
        {**_NEMOTRON, "layers_block_type": None, "hybrid_override_pattern": "*M-M", "use_bias": True, "mlp_bias": True},
    ),
    TinyFamily(
        "qwen3_next_older",
        "Qwen3NextForCausalLM",
        {
            "model_type": "qwen3_next",
            **_DELTA,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 28,
        },
    ),
    TinyFamily(
        "kimi_linear_usual",
        "KimiLinearForCausalLM",
        {
            "model_type": "kimi_linear",
            "num_hidden_layers": 4,
            "num_key_value_heads": 4,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "kv_lora_rank": 20,
            "qk_nope_head_dim": 12,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
            "linear_head_dim": 12,
            "linear_num_heads": 4,
            "linear_conv_kernel_dim": 4,
        },
    ),
]
"""Rows beside those of families."""

NOT_IN_FILES = {
    "mamba2_limited": "limits of steps",
    "bamba_biased": "limits of steps, biases of MLPs",
    "falcon_h1_normed": "factors beside biases of the mixer",
    "falcon_h1_norm_first": "a norm before the gate, limits of steps",
    "granite_hybrid_dense": "rotary embedding, limits of steps",
    "minimax_factors": "factors that differ",
    "nemotron_h_biased": "another least step",
    "qwen3_next_mixed": "layers without experts, weights that are not divided by their sum",
    "kimi_linear": "delta rules and latent attention with different numbers of heads",
    "kimi_linear_grouped": "dense layers between those with experts",
}
"""Row -> what it has that files of its architecture cannot say."""
