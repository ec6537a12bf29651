"""Which rows become GGUF files, and what the converter does with each architecture."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
from gguf import MODEL_ARCH as ARCH

from core_testing.families import TinyFamily

sys.path.insert(0, str(Path(__file__).parent))
import gguf_mixtures
import gguf_states
from ggufs import Form, add_rotary_dimensions, unfused_turns


def granite(writer, config, prefix):
    writer.add_attention_scale(config("attention_multiplier"))
    writer.add_embedding_scale(config("embedding_multiplier"))
    writer.add_residual_scale(config("residual_multiplier"))
    writer.add_logit_scale(config("logits_scaling"))


def cohere(writer, config, prefix):
    writer.add_logit_scale(config("logit_scale"))
    if window := config("sliding_window"):
        writer.add_sliding_window(window)


def windows(writer, config, prefix):
    """Which layers have a window, one by one."""
    if window := config("sliding_window"):
        writer.add_sliding_window(window)
        if config("layer_types") is not None:
            kinds = [kind == "sliding_attention" for kind in config("layer_types")]
            writer.add_array(f"{prefix}.attention.sliding_window_pattern", kinds)


def clamped(writer, config, prefix):
    writer.add_layer_norm_eps(1e-5)
    if config("clip_qkv") is not None:
        writer.add_clamp_kqv(config("clip_qkv"))


def parallel(writer, config, prefix):
    add_rotary_dimensions(writer, config, prefix)
    writer.add_parallel_residual(config("use_parallel_residual"))


def phi3(writer, config, prefix):
    add_rotary_dimensions(writer, config, prefix)
    writer.add_sliding_window(config("sliding_window", default=0))


def ministral(writer, config, prefix):
    if beta := config.rope.get("llama_4_scaling_beta"):
        writer.add_attn_temperature_scale(beta)


def mpt(writer, config, prefix):
    attention = config("attn_config")
    given = attention if isinstance(attention, dict) else attention.to_dict()
    writer.add_float32(f"{prefix}.attention.layer_norm_epsilon", 1e-5)
    writer.add_max_alibi_bias(given.get("alibi_bias_max", 8) if given.get("alibi") else 0.0)
    if given.get("clip_qkv") is not None:
        writer.add_clamp_kqv(given["clip_qkv"])
    if given.get("kv_n_heads"):
        writer.add_uint32(f"{prefix}.attention.head_count_kv", given["kv_n_heads"])


def deci(writer, config, prefix):
    """Heads and sizes of each layer; a layer without attention has no heads, one with a linear layer no keys."""
    blocks, heads = config("block_configs"), config.heads
    has = [not one["attention"].get("no_op") for one in blocks]
    writer.add_head_count([heads if one else 0 for one in has])
    writer.add_head_count_kv(deci_heads(config))
    inner = [-(-int(2 * (one["ffn"].get("ffn_mult") or 0) * config.hidden / 3) // 256) * 256 for one in blocks]
    writer.add_feed_forward_length(inner)
    writer.add_rope_dimension_count(config.head_dim)


def deci_heads(config):
    layers = [one["attention"] for one in config("block_configs")]
    attends = [not (one.get("no_op") or one.get("replace_with_linear")) for one in layers]
    return [config.heads // one["n_heads_in_group"] if has else 0 for one, has in zip(layers, attends, strict=True)]


def deci_pairs(name, value, config):
    """Rows that rotate together are neighbours, in so many heads as the layer has."""
    if not name.endswith(("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias")):
        return [(name, value)]
    heads = config.heads if "q_proj" in name else deci_heads(config)[int(name.split(".")[2])]
    halves = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
    return [(name, halves.swapaxes(1, 2).reshape(value.shape))]


def bigcode(writer, config, prefix):
    writer.add_uint32(f"{prefix}.attention.head_count_kv", 1)


def gptj(writer, config, prefix):
    writer.add_rope_dimension_count(config("rotary_dim"))


def minicpm(writer, config, prefix):
    writer.add_embedding_scale(config("scale_emb", default=1.0))
    writer.add_residual_scale(config("scale_depth", default=1.0) / config.layers**0.5)
    writer.add_logit_scale(config.hidden / config("dim_model_base", default=1))


def falcon(writer, config, prefix):
    writer.add_uint32(f"{prefix}.attention.head_count_kv", falcon_heads(config))


def falcon_heads(config):
    return config("num_kv_heads") if config("new_decoder_architecture") else 1


def hunyuan(writer, config, prefix):
    """The base that the rule gives takes the place of the base."""
    if alpha := config.rope.get("alpha"):
        size = config.head_dim
        writer.add_float32(f"{prefix}.rope.freq_base", config.rope["rope_theta"] * alpha ** (size / (size - 2)))


def gemma(writer, config, prefix):
    writer.add_sliding_window(config("sliding_window"))
    if config("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(config("attn_logit_softcapping"))
    if config("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config("final_logit_softcapping"))
    if (local := config.own.rope_parameters.get("sliding_attention")) is not None:
        writer.add_float32(f"{prefix}.rope.freq_base_swa", local["rope_theta"])
        writer.add_uint32(f"{prefix}.attention.sliding_window_pattern", 2)


def gemma4(writer, config, prefix):
    own, slides = config.own, [kind == "sliding_attention" for kind in config("layer_types")]
    shared, full = config.given.get("num_kv_shared_layers", 0), config.given.get("num_global_key_value_heads")
    writer.add_sliding_window(config("sliding_window"))
    writer.add_array(f"{prefix}.attention.sliding_window_pattern", slides)
    writer.add_uint32(f"{prefix}.attention.shared_kv_layers", shared)
    writer.add_uint32(f"{prefix}.embedding_length_per_layer_input", config("hidden_size_per_layer_input", default=0))
    for which, size in (("", config.given["global_head_dim"]), ("_swa", config.given["head_dim"])):
        writer.add_uint32(f"{prefix}.attention.key_length{which}", size)
        writer.add_uint32(f"{prefix}.rope.dimension_count{which}", size)
    if config.given.get("use_double_wide_mlp"):
        first = config.layers - shared
        inner = [config.given["intermediate_size"] * (1 if layer < first else 2) for layer in range(config.layers)]
        writer.add_feed_forward_length(inner)
    if full is not None:
        writer.add_head_count_kv([config.given["num_key_value_heads"] if one else full for one in slides])
    if config("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config("final_logit_softcapping"))
    writer.add_float32(f"{prefix}.rope.freq_base_swa", own.rope_parameters["sliding_attention"]["rope_theta"])
    half = config.given["global_head_dim"] // 2
    turning = int(half * own.rope_parameters["full_attention"]["partial_rotary_factor"])
    divisors = np.array([1.0] * turning + [1e30] * (half - turning), dtype=np.float32)
    writer.add_tensor("rope_freqs.weight", divisors)


def gemma3n(writer, config, prefix):
    """Shares of activations as so many deviations of a normal distribution."""
    own = config.own
    writer.add_sliding_window(config("sliding_window"))
    slides = [kind == "sliding_attention" for kind in config("layer_types")]
    writer.add_array(f"{prefix}.attention.sliding_window_pattern", slides)
    writer.add_uint32(f"{prefix}.altup.active_idx", config("altup_active_idx"))
    writer.add_uint32(f"{prefix}.altup.num_inputs", config("altup_num_inputs"))
    writer.add_uint32(f"{prefix}.embedding_length_per_layer_input", config("hidden_size_per_layer_input"))
    writer.add_uint32(f"{prefix}.attention.shared_kv_layers", config("num_kv_shared_layers"))
    writer.add_final_logit_softcapping(config("final_logit_softcapping"))
    shares = [NormalDist().inv_cdf(one) if one else float("-inf") for one in config("activation_sparsity_pattern")]
    writer.add_array(f"{prefix}.activation_sparsity_scale", shares)
    writer.add_float32(f"{prefix}.rope.freq_base_swa", own.rope_parameters["sliding_attention"]["rope_theta"])


def altup(writer, tensors):
    """The projections of all streams are one tensor."""
    found, parts = {}, {}
    for name, value in tensors.items():
        if ".altup_" in name:
            parts.setdefault(re.sub(r"projections\.\d+", "projections", name), []).append(value)
        else:
            found[name] = value
    return found | {name: np.stack(values) for name, values in parts.items()}


def alibi(writer, config, prefix):
    writer.add_layer_norm_eps(1e-5)
    writer.add_max_alibi_bias(8.0)


def qwen1(writer, config, prefix):
    writer.add_layer_norm_rms_eps(config("layer_norm_epsilon"))


def orion(writer, config, prefix):
    writer.add_layer_norm_eps(config("rms_norm_eps"))


def plamo3(writer, config, prefix):
    writer.add_sliding_window(config("window_size"))
    writer.add_sliding_window_pattern(config("sliding_window_pattern"))
    writer.add_float32(f"{prefix}.rope.freq_base_swa", config("rope_local_theta"))


def shifted(name, value, config):
    """Norms with what their model adds."""
    usual = {"post_mixer_norm.weight": 1 / 5, "post_mlp_norm.weight": 5**-1.5}
    if not name.endswith("norm.weight"):
        return [(name, value)]
    return [(name, value + usual.get(name.rpartition("layers.")[2].partition(".")[2], 1))]


def raised(name, value, config):
    """Norms with 1 added."""
    return [(name, value + 1 if name.endswith("norm.weight") else value)]


def suffixed(name, value, config):
    return [(f"{name}.weight" if name.endswith(("layer_scalar", "_scale")) else name, value)]


def turned(name, value, config):
    return [(name, value.T if re.search(r"(c_attn|c_proj|c_fc)\.weight$", name) else value)]


def jais(name, value, config):
    """The factors of muP are in the weights."""
    rows = turned(name.replace("c_fc2", "c_fc"), value, config)[0][1]
    if name != "transformer.wte.weight":
        return [(name, rows)]
    return [(name, rows * config("embeddings_scale")), ("lm_head.weight", rows * config("width_scale"))]


def baichuan(name, value, config):
    if "W_pack" not in name:
        return [(name, value)]
    parts = zip(("q_proj", "k_proj", "v_proj"), np.split(value, 3), strict=True)
    return [(name.replace("W_pack", part), one) for part, one in parts]


def by_turns(name, value, config):
    if "query_key_value" not in name:
        return [(name, value)]
    return [(name, unfused_turns(value, config.heads, config.kv_heads))]


def xielu(writer, tensors):
    """Its numbers are metadata, a list of those of all layers."""
    for kind in ("alpha_p", "alpha_n", "beta", "eps"):
        values = [float(np.ravel(value)[0]) for name, value in tensors.items() if name.endswith(f".act_fn.{kind}")]
        writer.add_array(f"xielu.{kind}", values)
    return {name: value for name, value in tensors.items() if ".act_fn." not in name}


def stacked(writer, tensors):
    """The norms of all heads are one tensor."""
    found, parts = {}, {}
    for name, value in tensors.items():
        if ".norms." in name:
            parts.setdefault(re.sub(r"norms\.\d+\.", "", name), []).append(value)
        else:
            found[name] = value
    return found | {name: np.stack(values) for name, values in parts.items()}


def internlm(name, value, config):
    """The fused projection in three."""
    if "attention.wqkv" not in name:
        return [(name, value)]
    rows = unfused_turns(value, config.heads, config.kv_heads)
    ends = np.cumsum([config.heads, config.kv_heads]) * config.head_dim
    return [
        (name.replace("wqkv", part), one) for part, one in zip(("wq", "wk", "wv"), np.split(rows, ends), strict=True)
    ]


def falcon_turns(name, value, config):
    if "query_key_value" not in name:
        return [(name, value)]
    return [(name, unfused_turns(value, config.heads, falcon_heads(config)))]


def whole(row, **changes):
    """Return a row with changes that files tell a model by."""
    return replace(row, name=f"{row.name}_whole", config={**row.config, **changes})


def sized(row):
    """Return a row of layers with sizes of their own, none of which has a linear layer in the place of its MLP."""
    blocks = [
        {**one, "ffn": {"no_op": True} if one["ffn"].get("no_op") else {"ffn_mult": one["ffn"].get("ffn_mult") or 2.0}}
        for one in row.config["block_configs"]
    ]
    return replace(row, name="deci_sizes", config={**row.config, "block_configs": blocks})


def bloom(name, value, config):
    return by_turns(name.removeprefix("transformer."), value, config)


_GEMMA = {"model_type": "gemma2", "head_dim": 24, "query_pre_attn_scalar": 24, "sliding_window": 8}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_GEMMA3N = {
    "model_type": "gemma3n_text",
    "head_dim": 20,
    "sliding_window": 6,
    "num_hidden_layers": 6,
    "layer_types": [*("sliding_attention", "sliding_attention", "full_attention") * 2],
    "num_kv_shared_layers": 3,
    "vocab_size_per_layer_input": 377,
    "hidden_size_per_layer_input": 12,
    "altup_num_inputs": 4,
    "laurel_rank": 10,
    "activation_sparsity_pattern": [0.8, 0.0, 0.6, 0.0, 0.3, 0.0],
    "tie_word_embeddings": False,
}
FURTHER = [
    TinyFamily("llama", "LlamaForCausalLM", {"model_type": "llama", "rope_scaling": {**_LLAMA3, "rope_theta": 1e4}}),
    TinyFamily("llama_bias", "LlamaForCausalLM", {"model_type": "llama", "attention_bias": True, "mlp_bias": True}),
    TinyFamily("mistral", "MistralForCausalLM", {"model_type": "mistral", "sliding_window": 8, "head_dim": 32}),
    TinyFamily("qwen2", "Qwen2ForCausalLM", {"model_type": "qwen2", "tie_word_embeddings": True}),
    TinyFamily("qwen3", "Qwen3ForCausalLM", {"model_type": "qwen3", "head_dim": 32}),
    TinyFamily("gemma2_usual", "Gemma2ForCausalLM", _GEMMA, spread=0.1),
    TinyFamily(
        "gemma3_scaled",
        "Gemma3ForCausalLM",
        {
            **_GEMMA,
            "model_type": "gemma3_text",
            "sliding_window_pattern": 2,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e4},
            },
        },
        spread=0.1,
    ),
    TinyFamily("cohere_qk", "CohereForCausalLM", {"model_type": "cohere", "use_qk_norm": True, "logit_scale": 0.5}),
    TinyFamily("gemma_tied", "GemmaForCausalLM", {"model_type": "gemma", "head_dim": 24}, spread=0.1),
    TinyFamily("gemma3n_usual", "Gemma3nForCausalLM", _GEMMA3N),
    *gguf_mixtures.FURTHER,
    *gguf_states.FURTHER,
]
"""Rows beside those of families."""

FORMS = {
    "LlamaForCausalLM": Form(ARCH.LLAMA),
    "XverseForCausalLM": Form(ARCH.XVERSE),
    "PanguEmbeddedForCausalLM": Form(ARCH.PANGU_EMBED),
    "ExaoneForCausalLM": Form(ARCH.EXAONE),
    "MistralForCausalLM": Form(ARCH.LLAMA, windows),
    "Qwen2ForCausalLM": Form(ARCH.QWEN2),
    "Qwen3ForCausalLM": Form(ARCH.QWEN3),
    "GemmaForCausalLM": Form(ARCH.GEMMA, change=raised),
    "Gemma2ForCausalLM": Form(ARCH.GEMMA2, gemma, raised),
    "Gemma3ForCausalLM": Form(ARCH.GEMMA3, gemma, raised),
    "GraniteForCausalLM": Form(ARCH.GRANITE, granite),
    "CohereForCausalLM": Form(ARCH.COMMAND_R, cohere),
    "Cohere2ForCausalLM": Form(ARCH.COHERE2, cohere),
    "OlmoForCausalLM": Form(ARCH.OLMO, clamped),
    "Olmo2ForCausalLM": Form(ARCH.OLMO2),
    "Olmo3ForCausalLM": Form(ARCH.OLMO2, windows),
    "NemotronForCausalLM": Form(ARCH.NEMOTRON, add_rotary_dimensions, raised),
    "PhiForCausalLM": Form(ARCH.PHI2, add_rotary_dimensions),
    "Phi3ForCausalLM": Form(ARCH.PHI3, phi3),
    "Glm4ForCausalLM": Form(ARCH.GLM4, add_rotary_dimensions),
    "GlmForCausalLM": Form(ARCH.CHATGLM, add_rotary_dimensions),
    "SmolLM3ForCausalLM": Form(ARCH.SMOLLM3),
    "Plamo3ForCausalLM": Form(ARCH.PLAMO3, plamo3, shifted),
    "Starcoder2ForCausalLM": Form(ARCH.STARCODER2, windows),
    "GPTBigCodeForCausalLM": Form(ARCH.STARCODER, bigcode),
    "Ernie4_5ForCausalLM": Form(ARCH.ERNIE4_5),
    "Exaone4ForCausalLM": Form(ARCH.EXAONE4, windows),
    "SeedOssForCausalLM": Form(ARCH.SEED_OSS),
    "HunYuanDenseV1ForCausalLM": Form(ARCH.HUNYUAN_DENSE, hunyuan),
    "ApertusForCausalLM": Form(ARCH.APERTUS, gather=xielu),
    "deci_sizes": Form(ARCH.DECI, deci, deci_pairs),
    "ArceeForCausalLM": Form(ARCH.ARCEE),
    "Ministral3ForCausalLM": Form(ARCH.MISTRAL3, ministral),
    "StableLmForCausalLM": Form(ARCH.STABLELM, parallel, gather=stacked),
    "FalconForCausalLM": Form(ARCH.FALCON, falcon, falcon_turns),
    "GPT2LMHeadModel": Form(ARCH.GPT2, change=turned),
    "GPTNeoXForCausalLM": Form(ARCH.GPTNEOX, parallel, by_turns),
    "BloomForCausalLM": Form(ARCH.BLOOM, change=bloom),
    "MptForCausalLM": Form(ARCH.MPT, mpt),
    "MPTForCausalLM": Form(ARCH.MPT, mpt),
    "GPTJForCausalLM": Form(ARCH.GPTJ, gptj),
    "MiniCPMForCausalLM": Form(ARCH.MINICPM, minicpm),
    "Gemma4ForCausalLM": Form(ARCH.GEMMA4, gemma4, suffixed),
    "Jais2ForCausalLM": Form(ARCH.JAIS2, add_rotary_dimensions),
    "JAISLMHeadModel": Form(ARCH.JAIS, alibi, jais),
    "QWenLMHeadModel": Form(ARCH.QWEN, qwen1),
    "OrionForCausalLM": Form(ARCH.ORION, orion),
    "BaiChuanForCausalLM": Form(ARCH.BAICHUAN, change=baichuan),
    "BaichuanForCausalLM": Form(ARCH.BAICHUAN, change=baichuan),
    "InternLM2ForCausalLM": Form(ARCH.INTERNLM2, change=internlm),
    "Gemma3nForCausalLM": Form(ARCH.GEMMA3N, gemma3n, suffixed, altup),
    **gguf_mixtures.FORMS,
    **gguf_states.FORMS,
}
"""Architecture of a row, or name of a row with a form of its own -> its form."""

NOT_IN_FILES = {
    **gguf_mixtures.NOT_IN_FILES,
    **gguf_states.NOT_IN_FILES,
    "gpt2_by_layer": "scores scaled by the number of the layer, another activation",
    "baichuan_13b": "ALiBi with other than 40 layers",
    "jais_family": "another activation, scores scaled by the number of the layer",
    "jais2_variants": "another activation",
    "gpt2_bare": "scores without a scale",
    "gpt_bigcode_heads": "several heads of keys",
    "gpt_neox_serial": "another activation",
    "phi_norms": "norms of queries and keys",
    "falcon_serial": "positions by ALiBi, several heads of keys in layers of the old kind",
    "falcon_serial_rotary": "attention and MLP one after another",
    "gemma": "a head of its own",
    "gemma4_moe": "experts, of which this reader refuses files",
    "gemma_mqa": "another activation",
    "gemma2": "a scale of scores that is not the size of a head",
    "gemma2_uncapped": "no caps",
    "gemma3": "a scale of scores that is not the size of a head",
    "gemma3n": "fewer rows in the table of layers' inputs than token ids",
    "gemma3n_plain": "MLPs of several sizes",
    "gemma3_types": "a scale of scores that is not the size of a head",
    "ministral3_window": "windows",
    "apertus_bias": "another activation",
    "cohere_norms": "a head of its own",
    "cohere2_pattern": "another pattern of windows",
    "mpt_clipped": "a scale of scores",
    "mpt_learned": "a scale of logits",
    "mpt_one_head": "a scale of logits",
    "olmo3_kinds": "two bases of the rotary embedding",
    "smollm3_listed": "layers that rotate, one by one",
    "smollm3_window": "windows",
    "starcoder2_bare": "another activation",
}
"""Row -> what it has that files of its architecture cannot say."""
