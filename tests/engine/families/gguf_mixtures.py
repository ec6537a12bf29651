"""Which rows with mixtures of experts, or with latent attention, become GGUF files, and what their converters do."""

from __future__ import annotations

import re

import numpy as np
from gguf import MODEL_ARCH as ARCH
from gguf import ExpertGatingFuncType as Gating
from ggufs import Form, add_rotary_dimensions, names_of

from core_testing.families import TinyFamily

COUNTS = {
    "expert_count": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "expert_used_count": ("num_experts_per_tok", "moe_topk", "moe_k"),
    "expert_shared_count": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size", "shared_intermediate_size"),
    "expert_group_count": ("n_group",),
    "expert_group_used_count": ("topk_group",),
    "leading_dense_block_count": ("first_k_dense_replace", "moe_layer_start_index"),
    "interleave_moe_layer_step": ("moe_layer_interval", "interleave_moe_layer_step"),
}


def moe(writer, config, prefix):
    """Numbers and sizes of experts."""
    for key, names in COUNTS.items():
        if (value := config(*names)) is not None:
            writer.add_uint32(f"{prefix}.{key}", value)


def grouped(writer, config, prefix):
    """How experts are chosen by corrected sigmoids, and weighed."""
    moe(writer, config, prefix)
    writer.add_expert_gating_func(Gating.SIGMOID)
    writer.add_expert_weights_norm(bool(config("norm_topk_prob", default=False)))
    writer.add_expert_weights_scale(config("routed_scaling_factor", default=1.0))
    if config("partial_rotary_factor") is not None or "partial_rotary_factor" in config.rope:
        add_rotary_dimensions(writer, config, prefix)


def latent(writer, config, prefix):
    """Sizes of latent attention, whose keys and values are those of one head."""
    old_latent(writer, config, prefix)
    kept, rotated = config("kv_lora_rank"), config("qk_rope_head_dim")
    writer.add_head_count_kv(1)
    writer.add_key_length(kept + rotated)
    writer.add_value_length(kept)
    writer.add_key_length_mla(config("qk_nope_head_dim") + rotated)
    writer.add_value_length_mla(config("v_head_dim"))


def old_latent(writer, config, prefix):
    """The same of files whose keys and values are one tensor."""
    rotated = config("qk_rope_head_dim")
    writer.add_head_count_kv(config.heads)
    writer.add_key_length(config("qk_nope_head_dim") + rotated)
    writer.add_value_length(config("v_head_dim", default=config.hidden // config.heads))
    writer.add_rope_dimension_count(rotated)
    writer.add_kv_lora_rank(config("kv_lora_rank"))
    if config("q_lora_rank") is not None:
        writer.add_q_lora_rank(config("q_lora_rank"))
    if "mscale_all_dim" in config.rope:
        writer.add_rope_scaling_yarn_log_mul(0.1 * config.rope["mscale_all_dim"])


def third(writer, config, prefix):
    grouped(writer, config, prefix)
    latent(writer, config, prefix)


def picking(writer, config, prefix):
    third(writer, config, prefix)
    writer.add_indexer_head_count(config("index_n_heads"))
    writer.add_indexer_key_length(config("index_head_dim"))
    writer.add_indexer_top_k(config("index_topk"))
    if "indexer_types" in config.given:
        types = [one == "full" for one in config.given["indexer_types"]]
        writer.add_array(f"{prefix}.attention.indexer.types", types)


def second(writer, config, prefix):
    moe(writer, config, prefix)
    latent(writer, config, prefix)
    writer.add_expert_gating_func(Gating.SOFTMAX)
    writer.add_expert_weights_scale(config("routed_scaling_factor"))


def oldest(writer, config, prefix):
    """What files of DeepSeek V2 said at first: nothing of groups or of how experts are chosen."""
    old_latent(writer, config, prefix)
    moe(writer, config, prefix)
    writer.add_expert_weights_scale(config("routed_scaling_factor"))


def granite(writer, config, prefix):
    moe(writer, config, prefix)
    writer.add_attention_scale(config("attention_multiplier"))
    writer.add_embedding_scale(config("embedding_multiplier"))
    writer.add_residual_scale(config("residual_multiplier"))
    writer.add_logit_scale(config("logits_scaling"))


def hunyuan(writer, config, prefix):
    """The base that the rule gives takes the place of the base."""
    moe(writer, config, prefix)
    writer.add_expert_feed_forward_length(config("intermediate_size"))
    writer.add_expert_shared_feed_forward_length(config("intermediate_size"))
    if alpha := config.rope.get("alpha"):
        size = config.head_dim
        writer.add_rope_freq_base(config.rope["rope_theta"] * alpha ** (size / (size - 2)))


def gpt_oss(writer, config, prefix):
    moe(writer, config, prefix)
    writer.add_expert_feed_forward_length(config("intermediate_size"))
    writer.add_sliding_window(config("sliding_window"))


def minimax(writer, config, prefix):
    moe(writer, config, prefix)
    writer.add_expert_gating_func(Gating.SIGMOID)
    writer.add_rope_dimension_count(config("rotary_dim", default=config.head_dim))


def mimo(writer, config, prefix):
    grouped(writer, config, prefix)
    windows = [kind == "sliding_attention" for kind in config("layer_types")]
    heads = config.given["num_key_value_heads"]
    writer.add_head_count_kv([2 * heads if one else heads for one in windows])
    writer.add_sliding_window(config("sliding_window") - 1)  # the makers do not count the query
    writer.add_sliding_window_pattern([int(one) for one in windows])
    writer.add_value_length(config("v_head_dim"))
    writer.add_layer_norm_rms_eps(1e-5)
    ropes = config.own.rope_parameters
    writer.add_float32(f"{prefix}.rope.freq_base_swa", ropes["sliding_attention"]["rope_theta"])
    writer.add_rope_dimension_count(int(config.head_dim * ropes["full_attention"]["partial_rotary_factor"]))


def llama4(writer, config, prefix):
    moe(writer, config, prefix)
    writer.add_expert_feed_forward_length(config("intermediate_size"))
    writer.add_feed_forward_length(config("intermediate_size_mlp"))


def phimoe(writer, config, prefix):
    moe(writer, config, prefix)
    writer.add_layer_norm_rms_eps(config("rms_norm_eps"))


def bailing(writer, config, prefix):
    moe(writer, config, prefix)
    writer.add_expert_weights_norm(bool(config("norm_topk_prob", default=False)))
    writer.add_expert_weights_scale(1.0)
    writer.add_rope_dimension_count(config.head_dim)


def bailing2(writer, config, prefix):
    grouped(writer, config, prefix)
    writer.add_rope_dimension_count(config("rotary_dim", default=config.head_dim // 2))


def dbrx(writer, config, prefix):
    own, attention = config.own.ffn_config, config.own.attn_config
    writer.add_feed_forward_length(own.ffn_hidden_size)
    writer.add_expert_count(own.moe_num_experts)
    writer.add_expert_used_count(own.moe_top_k)
    writer.add_clamp_kqv(attention.clip_qkv)
    writer.add_layer_norm_eps(1e-5)


def grok(writer, config, prefix):
    moe(writer, config, prefix)
    writer.add_attn_logit_softcapping(config("attn_logit_softcapping", default=30.0))
    writer.add_router_logit_softcapping(config("router_logit_softcapping", default=30.0))
    if config("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config("final_logit_softcapping"))
    writer.add_attn_output_scale(config("attn_output_multiplier"))
    writer.add_embedding_scale(config("embedding_multiplier_scale"))
    writer.add_logit_scale(config("output_multiplier_scale"))


def of_grok(writer, tensors):
    """The second model's names of experts; what the first one calls its last norm has another name in files."""
    parts = {".linear.": ".w1.", ".linear_v.": ".w3.", ".linear_1.": ".w2."}
    found = {}
    for name, value in tensors.items():
        first = ".moe_block." in name or name.endswith("norm.scale")
        usual = name.replace("moe_block", "block_sparse_moe").replace("norm.scale", "norm.weight")
        usual = usual.replace(".attn.", ".self_attn.")
        for old, new in parts.items():
            usual = usual.replace(old, new)
        if first and "post_moe_norm" in usual:
            layer = usual.split(".")[2]
            usual = f"transformer.decoder_layer.{layer}.rms_norm_3.weight"
        found[usual] = value
    return each_expert(writer, found)


def of_dbrx(name, value, config):
    """Matrices of experts one after another, outputs first."""
    if ".experts.mlp." not in name:
        return [(name, value)]
    apart = value.reshape(config.own.ffn_config.moe_num_experts, -1, value.shape[1])
    return [(f"{name}.weight", apart.swapaxes(1, 2) if name.endswith("w2") else apart)]


def of_experts(name, value, config):
    """Gate and up apart; a row of one output has lost that dimension."""
    if name.endswith(".experts.gate_up_proj"):
        gate, up = np.split(value, 2, axis=1)
        base = name.removesuffix("gate_up_proj")
        return [(f"{base}gate_proj.weight", gate), (f"{base}up_proj.weight", up)]
    if name.endswith(".experts.down_proj"):
        return [(f"{name}.weight", value)]
    if name.endswith("correction_bias"):
        path = name.replace("gate.moe_statics", "moe_statics")
        return [(path.replace("correction_bias", "correction.bias"), value.reshape(-1))]
    return [(name, value.reshape(-1) if name.endswith("shared_expert_gate.weight") else value)]


def of_latent(name, value, config):
    """Keys and values apart, head by head; those of the keys are turned."""
    if not name.endswith("kv_b_proj.weight"):
        return of_experts(name, value, config)
    heads = value.reshape(config.heads, -1, value.shape[1])
    keys, values = np.split(heads, [config("qk_nope_head_dim")], axis=1)
    return [(name.replace("kv_b", "k_b"), keys.swapaxes(1, 2)), (name.replace("kv_b", "v_b"), values)]


def named_as_its_successor(writer, tensors):
    """The library does not know the architecture, but one with the same names."""
    names = names_of(ARCH.GLM_DSA, 99)
    return {names.get_name(name, try_suffixes=(".weight", ".bias")): value for name, value in tensors.items()}


def of_granite(name, value, config):
    """The names that its checkpoints have; gate and up of the shared MLP apart, too."""
    if "shared_mlp.input_linear" in name:
        parts = zip(("gate", "up"), np.split(value, 2), strict=True)
        return [
            (name.replace("shared_mlp.input_linear", f"mlp.shared_experts.{part}_proj"), one) for part, one in parts
        ]
    if "block_sparse_moe" not in name:
        return [(name, value)]
    return of_mixtral(name.replace("router.weight", "router.layer.weight"), value, config)


def of_gpt_oss(name, value, config):
    """Outputs first; gate and up, which come by turns, apart."""
    if name.endswith("sinks"):
        return [(f"{name}.weight", value)]
    if ".experts." not in name:
        return [(name, value)]
    kind = "bias" if name.endswith("_bias") else "weight"
    base = name.removesuffix("_bias")
    rows = value if kind == "bias" else value.swapaxes(1, 2)
    if "gate_up" not in name:
        return [(f"{base}.{kind}", rows)]
    return [(base.replace("gate_up", part) + f".{kind}", rows[:, at::2]) for at, part in enumerate(("gate", "up"))]


def of_llama4(name, value, config):
    """Outputs first, gate and up apart."""
    turned = value.swapaxes(1, 2) if ".experts." in name else value
    return of_experts(name, turned, config)


def of_mixtral(name, value, config):
    """The names that the first mixtures had."""
    found = of_experts(name, value, config)
    parts = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    for usual, part in parts.items():
        found = [(one.replace(f"experts.{usual}", f"experts.{part}"), rows) for one, rows in found]
    return [(one.replace("mlp.router", "mlp.gate").replace("mlp.", "block_sparse_moe."), rows) for one, rows in found]


def each_expert(writer, tensors):
    """The experts' tensors are one."""
    found, parts = {}, {}
    for name, value in tensors.items():
        one = re.sub(r"experts\.\d+\.", "experts.", name)
        if one == name:
            found[name] = value
        else:
            parts.setdefault(one, []).append(value)
    return found | {name: np.stack(values) for name, values in parts.items()}


def sinks(name, value, config):
    if name.endswith("sinks"):
        return [(name.replace("sinks", "attention_sink_bias.weight"), value)]
    return of_experts(name, value, config)


def bailing_parts(name, value, config):
    """The fused projection in three."""
    if "query_key_value" not in name:
        return [(name, value)]
    ends = np.cumsum([config.heads, config.kv_heads]) * config.head_dim
    return [
        (name.replace("attention.query_key_value", f"self_attn.{part}"), rows)
        for part, rows in zip(("q_proj", "k_proj", "v_proj"), np.split(value, ends), strict=True)
    ]


def expert_bias(name, value, config):
    return [(name.replace("expert_bias", "expert_bias.bias"), value)]


FORMS = {
    "MixtralForCausalLM": Form(ARCH.LLAMA, moe, of_experts),
    "Qwen2MoeForCausalLM": Form(ARCH.QWEN2MOE, moe, of_experts),
    "Qwen3MoeForCausalLM": Form(ARCH.QWEN3MOE, moe, of_experts),
    "OlmoeForCausalLM": Form(ARCH.OLMOE, moe, of_experts),
    "DeepseekForCausalLM": Form(ARCH.DEEPSEEK, moe, gather=each_expert),
    "DeepseekV2ForCausalLM": Form(ARCH.DEEPSEEK2, second, of_latent),
    "DeepseekV3ForCausalLM": Form(ARCH.DEEPSEEK2, third, of_latent),
    "Glm4MoeLiteForCausalLM": Form(ARCH.DEEPSEEK2, third, of_latent),
    "DeepseekV32ForCausalLM": Form("deepseek32", picking, of_latent, named_as_its_successor),
    "GlmMoeDsaForCausalLM": Form(ARCH.GLM_DSA, picking, of_latent),
    "deepseek_v2_older": Form(ARCH.DEEPSEEK2, oldest, of_experts),
    "Glm4MoeForCausalLM": Form(ARCH.GLM4_MOE, grouped, of_experts),
    "Dots1ForCausalLM": Form(ARCH.DOTS1, grouped, of_experts),
    "MiniMaxM2ForCausalLM": Form(ARCH.MINIMAXM2, minimax, of_mixtral),
    "MiMoV2FlashForCausalLM": Form(ARCH.MIMO2, mimo, sinks),
    "Ernie4_5_MoeForCausalLM": Form(ARCH.ERNIE4_5_MOE, moe, of_experts),
    "HunYuanMoEV1ForCausalLM": Form(ARCH.HUNYUAN_MOE, hunyuan, of_experts),
    "GraniteMoeForCausalLM": Form(ARCH.GRANITE_MOE, granite, of_granite),
    "GraniteMoeSharedForCausalLM": Form(ARCH.GRANITE_MOE, granite, of_granite),
    "GptOssForCausalLM": Form(ARCH.GPT_OSS, gpt_oss, of_gpt_oss),
    "Llama4ForCausalLM": Form(ARCH.LLAMA4, llama4, of_llama4),
    "PhimoeForCausalLM": Form(ARCH.PHIMOE, phimoe, of_mixtral),
    "BailingMoeForCausalLM": Form(ARCH.BAILINGMOE, bailing, bailing_parts, each_expert),
    "BailingMoeV2ForCausalLM": Form(ARCH.BAILINGMOE2, bailing2, expert_bias, each_expert),
    "ArcticForCausalLM": Form(ARCH.ARCTIC, moe, gather=each_expert),
    "Grok1ForCausalLM": Form(ARCH.GROK, grok, gather=of_grok),
    "Grok1ModelForCausalLM": Form(ARCH.GROK, grok, gather=of_grok),
    "DbrxForCausalLM": Form(ARCH.DBRX, dbrx, of_dbrx),
    "MiniCPM3ForCausalLM": Form(ARCH.MINICPM3, old_latent),
}
"""Architecture of a row, or name of a row with a form of its own -> its form."""

_LATENT = {
    "kv_lora_rank": 24,
    "q_lora_rank": 28,
    "qk_nope_head_dim": 14,
    "qk_rope_head_dim": 12,
    "num_key_value_heads": 4,
}
_EXPERTS = {
    "n_routed_experts": 12,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 36,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.7,
    "v_head_dim": 10,
}
_YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 0.7,
    "mscale_all_dim": 0.7,
}
_DEEPSEEK = {**_LATENT, **_EXPERTS, "rope_scaling": _YARN}
_GROUPS = {"n_group": 4, "topk_group": 2}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FURTHER = [
    TinyFamily("deepseek_v3_scaled", "DeepseekV3ForCausalLM", {"model_type": "deepseek_v3", **_DEEPSEEK, **_GROUPS}),
    TinyFamily(
        "deepseek_v32_scaled",
        "DeepseekV32ForCausalLM",
        {
            "model_type": "deepseek_v32",
            **_DEEPSEEK,
            **_GROUPS,
            "index_topk": 8,
            "index_n_heads": 6,
            "index_head_dim": 20,
        },
    ),
    TinyFamily(
        "deepseek_v2_scaled",
        "DeepseekV2ForCausalLM",
        {"model_type": "deepseek_v2", **_DEEPSEEK, **_GROUPS, "topk_method": "group_limited_greedy"},
    ),
    TinyFamily(
        "deepseek_v2_older",
        "DeepseekV2ForCausalLM",
        {"model_type": "deepseek_v2", **_DEEPSEEK, "topk_method": "greedy", "q_lora_rank": None},
    ),
    TinyFamily(
        "hunyuan_moe_alpha",
        "HunYuanMoEV1ForCausalLM",
        {
            "model_type": "hunyuan_v1_moe",
            "head_dim": 24,
            "num_experts": 5,
            "moe_topk": 3,
            "rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1},
        },
    ),
    TinyFamily(
        "llama4_usual",
        "Llama4ForCausalLM",
        {
            "model_type": "llama4_text",
            "num_hidden_layers": 4,
            "num_local_experts": 5,
            "head_dim": 24,
            "intermediate_size": 36,
            "intermediate_size_mlp": 88,
            "interleave_moe_layer_step": 2,
            "rope_scaling": _LLAMA3,
        },
    ),
    TinyFamily("phimoe_usual", "PhimoeForCausalLM", {"model_type": "phimoe", "num_local_experts": 7}),
    TinyFamily(
        "minicpm3_usual",
        "MiniCPM3ForCausalLM",
        {
            "model_type": "minicpm3",
            **_LATENT,
            "rope_scaling": {
                "rope_type": "longrope",
                "factor": 2.0,
                "original_max_position_embeddings": 128,
                "short_factor": [1.0 + 0.1 * pair for pair in range(6)],
                "long_factor": [2.0 + 0.2 * pair for pair in range(6)],
            },
        },
    ),
]
"""Rows beside those of families."""

NOT_IN_FILES = {
    "mixtral_window": "windows",
    "qwen2_moe_window": "windows, weights that are divided by their sum",
    "qwen3_moe_mixed": "layers without experts",
    "olmoe_clipped": "weights that are divided by their sum",
    "deepseek_v3_yarn": "two magnitudes of rotary scaling",
    "deepseek_v3_halves": "another order of rotary embedding",
    "deepseek_v2": "two magnitudes of rotary scaling",
    "deepseek_v32": "two magnitudes of rotary scaling",
    "dots1_window": "windows",
    "mimo_v2_flash_kinds": "values without a factor, two shares of a head that rotate",
    "hunyuan_moe": "another number of experts in each layer",
    "gpt_oss_kinds": "another activation, other windows",
    "llama4": "another chunk",
    "llama4_mixed": "queries that do not grow",
    "llama4_listed": "layers with experts, one by one",
    "phimoe": "another nearness of logits",
    "phimoe_long": "magnitudes of sines and cosines",
    "bailing_moe_mixed": "dense layers",
    "arctic_mixed": "dense layers",
    "arctic_serial": "no MLP beside",
    "dbrx_unlike": "weights that are not divided by their sum, another activation",
    "minicpm3": "other factors",
    "minicpm3_long": "other factors",
}
"""Row -> what it has that files of its architecture cannot say."""
