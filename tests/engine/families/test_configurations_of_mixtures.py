"""Configurations of decoders with experts: the forms that makers gave them, and what is refused by name."""

from __future__ import annotations

from importlib import import_module

import pytest

from core.api.errors import CheckpointError

MODULES = {
    "arctic": "core_plugin_arctic.family",
    "bailing_moe": "core_plugin_bailing_moe.family",
    "bailing_moe_v2": "core_plugin_bailing_moe.family",
    "dbrx": "core_plugin_dbrx.family",
    "dots1": "core_plugin_dots.family",
    "ernie_moe": "core_plugin_ernie.moe",
    "flex_olmo": "core_plugin_olmo.moe",
    "glm4_moe": "core_plugin_glm.moe",
    "gpt_oss": "core_plugin_gpt_oss.family",
    "grok1": "core_plugin_grok.family",
    "grok2": "core_plugin_grok.family",
    "granite_moe": "core_plugin_granite.moe",
    "hunyuan_moe": "core_plugin_hunyuan.moe",
    "hy_v3": "core_plugin_hunyuan.third",
    "llama4": "core_plugin_llama4.family",
    "longcat_flash": "core_plugin_longcat.family",
    "mimo_v2_flash": "core_plugin_mimo.family",
    "minimax_m2": "core_plugin_minimax.family",
    "olmoe": "core_plugin_olmo.moe",
    "phimoe": "core_plugin_phi.phimoe",
}

REFUSED = [
    ("arctic", {"sliding_window": 4}, "sliding_window"),
    ("arctic", {"num_experts_per_tok": 8}, "num_experts_per_tok"),
    ("bailing_moe", {"norm_head": True}, "norm_head"),
    ("bailing_moe", {"use_bias": True}, "use_bias"),
    ("bailing_moe", {"use_sliding_window": True}, "use_sliding_window"),
    ("bailing_moe", {"score_function": "sigmoid"}, "score_function"),
    ("bailing_moe", {"n_group": 7}, "n_group"),
    ("bailing_moe_v2", {"n_group": 5}, "n_group"),
    ("bailing_moe_v2", {"use_rmsnorm": False}, "use_rmsnorm"),
    ("dbrx", {"tie_word_embeddings": True}, "tie_word_embeddings"),
    ("dbrx", {"ffn_config": {"moe_normalize_expert_weights": 2.0}}, "moe_normalize_expert_weights"),
    ("dbrx", {"ffn_config": {"moe_num_experts": 2, "moe_top_k": 3}}, "moe_top_k"),
    ("dots1", {"n_shared_experts": None}, "n_shared_experts"),
    ("ernie_moe", {"moe_use_aux_free": False}, "moe_use_aux_free"),
    ("ernie_moe", {"moe_gate": "expert_choice"}, "moe_gate"),
    ("ernie_moe", {"moe_norm_min": 0.5}, "moe_norm_min"),
    ("ernie_moe", {"use_bias": True}, "use_bias"),
    ("ernie_moe", {"moe_k": 8}, "moe_k"),
    ("flex_olmo", {"clip_qkv": 1.0}, "clip_qkv"),
    ("glm4_moe", {"n_group": 2}, "n_group"),
    ("glm4_moe", {"n_group": 9, "topk_group": 9}, "n_group"),
    ("glm4_moe", {"topk_group": 4, "n_group": 3}, "topk_group"),
    ("glm4_moe", {"scoring_func": "softmax"}, "scoring_func"),
    ("glm4_moe", {"topk_method": "greedy"}, "topk_method"),
    ("glm4_moe", {"num_experts_per_tok": 10}, "num_experts_per_tok"),
    ("glm4_moe", {"first_k_dense_replace": -1}, "first_k_dense_replace"),
    ("glm4_moe", {"n_shared_experts": 0.5}, "n_shared_experts"),
    ("gpt_oss", {"hidden_act": "gelu"}, "hidden_act"),
    ("gpt_oss", {"num_experts_per_tok": 8}, "num_experts_per_tok"),
    ("grok1", {"num_experts_per_tok": 7}, "num_experts_per_tok"),
    ("grok2", {"rope_rotate_half_dims": True}, "rope_rotate_half_dims"),
    ("grok2", {"sliding_window_size": 128}, "sliding_window_size"),
    ("grok2", {"rope_type": "yarn"}, "rope_type"),
    ("granite_moe", {"mlp_bias": True}, "mlp_bias"),
    ("hunyuan_moe", {"moe_intermediate_size": [88, 88, 40]}, "moe_intermediate_size"),
    ("hunyuan_moe", {"num_shared_expert": 2}, "num_shared_expert"),
    ("hunyuan_moe", {"moe_topk": [1, 2]}, "moe_topk"),
    ("hunyuan_moe", {"moe_layer_num_skipped": 1}, "moe_layer_num_skipped"),
    ("hunyuan_moe", {"use_mixed_mlp_moe": False}, "use_mixed_mlp_moe"),
    ("hunyuan_moe", {"use_cla": True}, "use_cla"),
    ("hy_v3", {"route_norm": False}, "route_norm"),
    ("hy_v3", {"qk_norm": False}, "qk_norm"),
    ("hy_v3", {"mlp_layer_types": ["dense"]}, "mlp_layer_types"),
    ("llama4", {"layer_types": ["sliding_attention"] * 4}, "layer_types"),
    ("llama4", {"no_rope_layers": [1, 0, 2, 1]}, "no_rope_layers"),
    ("llama4", {"no_rope_layers": [1, 0]}, "no_rope_layers"),
    ("longcat_flash", {"zero_expert_type": "copy"}, "zero_expert_type"),
    ("longcat_flash", {"router_bias": True}, "router_bias"),
    ("longcat_flash", {"attention_method": "MHA"}, "attention_method"),
    ("longcat_flash", {"moe_topk": 13}, "moe_topk"),
    ("mimo_v2_flash", {"add_full_attention_sink_bias": True}, "add_full_attention_sink_bias"),
    ("mimo_v2_flash", {"add_swa_attention_sink_bias": False}, "add_swa_attention_sink_bias"),
    ("mimo_v2_flash", {"swa_head_dim": 32}, "swa_head_dim"),
    ("mimo_v2_flash", {"n_shared_experts": 1}, "n_shared_experts"),
    ("mimo_v2_flash", {"v_head_dim": 25}, "v_head_dim"),
    ("mimo_v2_flash", {"mlp_layer_types": ["moe"] * 4}, "mlp_layer_types"),
    ("minimax_m2", {"attn_type_list": [1, 0, 1]}, "attn_type_list"),
    ("minimax_m2", {"shared_intermediate_size": 8}, "shared_intermediate_size"),
    ("minimax_m2", {"scoring_func": "softmax"}, "scoring_func"),
    ("minimax_m2", {"use_routing_bias": False}, "use_routing_bias"),
    ("minimax_m2", {"use_qk_norm": False}, "use_qk_norm"),
    ("olmoe", {"num_experts_per_tok": 8}, "num_experts_per_tok"),
    ("phimoe", {"num_experts_per_tok": 1}, "num_experts_per_tok"),
    (
        "phimoe",
        {"rope_scaling": {"type": "longrope", "short_mscale": 1.1, "long_mscale": 1.2}},
        "long_mscale",
    ),
]

_LAYERS_1_AND_2 = {"moe_intermediate_size": None, "expert_hidden_dim": 36, "mlp_layer_types": None}
SAME = [
    ("arctic", {}, {"use_residual": None, "parallel_attn_mlp_res": True}),
    ("dbrx", {}, {"rope_parameters": None}),
    ("grok1", {}, {"max_attn_value": 30.0, "tie_word_embeddings": None}),
    ("grok2", {}, {"sliding_window_size": -1, "global_attn_every_n": 1, "scaling_factor": 16.0}),
    ("dots1", {}, {"scoring_func": "noaux_tc", "topk_method": "noaux_tc"}),
    ("hy_v3", {}, {"route_norm": True, "qk_norm": True, **_LAYERS_1_AND_2, "first_k_dense_replace": 1}),
    ("hunyuan_moe", {"moe_topk": 2}, {"moe_topk": [2, 2, 2], "num_shared_expert": [1] * 3, "use_qk_norm": True}),
    ("hunyuan_moe", {}, {"moe_intermediate_size": [88] * 3, "moe_layer_num_skipped": 0}),
    (
        "longcat_flash",
        {"rope_theta": 1e7},
        {"zero_expert_type": "identity", "attention_method": "MLA", "mla_scale_q_lora": True, "router_bias": False},
    ),
    ("minimax_m2", {}, {"attn_type_list": [1, 1, 1], "qk_norm_type": "per_layer", "shared_intermediate_size": 0}),
    (
        "mimo_v2_flash",
        {"rms_norm_eps": 1e-4, "sliding_window": 9, "layer_types": ["full_attention", *["sliding_attention"] * 3]},
        {
            "layernorm_epsilon": 1e-4,
            "sliding_window": None,
            "sliding_window_size": 8,
            "hybrid_layer_pattern": [0, 1, 1, 1],
            "moe_layer_freq": [0, 1, 1, 1],
            "swa_num_key_value_heads": 2,
            "swa_rope_theta": 10000,
            "rope_theta": 5000000,
            "partial_rotary_factor": 0.334,
            "n_shared_experts": None,
            "routed_scaling_factor": None,
            "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
        },
    ),
]
"""Row, what a configuration says in transformers' words, and in its makers'."""


def described(families, name, **given):
    return import_module(MODULES[name]).read(families[name].values(**given))


@pytest.mark.covers("MODEL-01")
@pytest.mark.parametrize(("name", "given", "key"), REFUSED, ids=[f"{name}-{key}" for name, _, key in REFUSED])
def test_what_is_not_supported_is_named(name, given, key, families):
    described(families, name)
    with pytest.raises(CheckpointError, match=key) as caught:
        described(families, name, **given)
    assert caught.value.code == "CORE-M126"


@pytest.mark.covers("MODEL-01")
@pytest.mark.parametrize(("name", "usual", "makers"), SAME)
def test_makers_configurations_describe_the_same_decoder(name, usual, makers, families):
    assert described(families, name, **usual) == described(families, name, **makers)


@pytest.mark.covers("MODEL-02")
@pytest.mark.parametrize(
    ("name", "given", "skipped"),
    [
        ("glm4_moe", {"num_nextn_predict_layers": 1}, ("model.layers.3.*",)),
        ("minimax_m2", {"num_mtp_modules": 2}, ("model.layers.3.*", "model.layers.4.*")),
        ("hy_v3", {}, ("model.layers.3.*",)),
        ("bailing_moe_v2", {"num_nextn_predict_layers": 0}, ()),
        ("mimo_v2_flash", {}, ("model.mtp.*",)),
        ("ernie_moe", {}, ("model.mtp_*",)),
    ],
)
def test_layers_that_only_predict_further_tokens_are_left_out(name, given, skipped, families):
    assert described(families, name, **given).skips == skipped


@pytest.mark.covers("MODEL-01")
@pytest.mark.parametrize(("length", "longest"), [(None, 256), (100, 100), (1024, 256), (-1, 256)])
def test_contexts_end_where_capped_scores_would_grow(length, longest, families):
    assert described(families, "grok2", attn_temperature_len=length).max_positions == longest
