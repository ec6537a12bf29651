"""Further keys of configurations, from metadata and from which tensors there are. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core_plugin_gguf.faults import damaged, unsupported
from core_plugin_gguf.layers import by_layer

if TYPE_CHECKING:
    from core_plugin_gguf.architecture import Facts, Read

SLIDING, FULL = "sliding_attention", "full_attention"
"""Kinds of layers, by transformers' names."""


def number(key: str, name: str, default: float | None = None) -> Read:
    """Return what reads a number. A file without the key, or with 0, gives `default`; None: the key stays away."""

    def read(facts: Facts) -> Mapping[str, Any]:
        value = facts.header.number(facts.key(key)) or default
        return {} if value is None else {name: value}

    return read


def flag(key: str, name: str, *, default: bool) -> Read:
    """Return what reads a truth value."""

    def read(facts: Facts) -> Mapping[str, Any]:
        value = facts.header.flag(facts.key(key))
        return {name: default if value is None else value}

    return read


def present(module: str, *names: str) -> Read:
    """Return what says by a tensor whether something is so."""

    def read(facts: Facts) -> Mapping[str, Any]:
        return dict.fromkeys(names, facts.has(module))

    return read


def window(pattern: int = 1, name: str = "sliding_window") -> Read:
    """Return what reads a sliding window and the layers that have it.

    Files name these layers one by one, or say that one in so many has none; else one in `pattern` has none, 1 meaning
    that the configuration says nothing about single layers.
    """

    def read(facts: Facts) -> Mapping[str, Any]:
        size = facts.header.integer(facts.key("attention.sliding_window"))
        if not size:
            return {name: None}
        kinds = layer_types(facts, pattern)
        return {name: size} if kinds is None else {name: size, "layer_types": kinds}

    return read


def layer_types(facts: Facts, pattern: int = 1) -> list[str] | None:
    """Return the kind of each layer; None where all are alike. Raises `CheckpointError` CORE-M141: too few or many."""
    layers, key = facts.config["num_hidden_layers"], facts.key("attention.sliding_window_pattern")
    if facts.header.is_array(key):
        slides = facts.header.numbers(key) or []
        if len(slides) != layers:
            raise damaged(facts.header.path, f"{key} has {len(slides)} entries for {layers} layers")
        return [SLIDING if one else FULL for one in slides]
    every = facts.header.positive_integer(key, pattern)
    return None if every == 1 else [SLIDING if (layer + 1) % every else FULL for layer in range(layers)]


def experts(count: str = "num_experts", used: str = "num_experts_per_tok", **sizes: str) -> tuple[Read, ...]:
    """Return what reads how many experts there are, and how many of them a token has.

    Args:
        count, used: Keys of the configuration.
        sizes: Further keys of the file -> those of the configuration.
    """
    keys = {"expert_count": count, "expert_used_count": used, **sizes}
    return tuple(integer(key, name) for key, name in keys.items())


def integer(key: str, name: str) -> Read:
    """Return what reads a whole number above 0, which every file has."""
    return lambda facts: {name: facts.header.positive_integer(facts.key(key))}


def mixtral(facts: Facts) -> Mapping[str, Any]:
    """Llama with experts is Mixtral."""
    if not facts.header.integer(facts.key("expert_count")):
        return {}
    found: dict[str, Any] = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
    for read in experts("num_local_experts"):
        found |= read(facts)
    return found


def mistral(facts: Facts) -> Mapping[str, Any]:
    """Llama with a window is Mistral."""
    size = facts.header.integer(facts.key("attention.sliding_window"))
    return {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": size} if size else {}


def granite(facts: Facts) -> Mapping[str, Any]:
    """The factors of Granite and MiniCPM; scores are scaled by the size of a head unless the file says otherwise."""
    scale = facts.header.positive_number(facts.key("attention.scale"), facts.config["head_dim"] ** -0.5)
    return {"attention_multiplier": scale}


def falcon(facts: Facts) -> Mapping[str, Any]:
    """Models with several heads of keys are of the new kind; with `attn_norm_2` they have two norms in a layer."""
    several = facts.config["num_key_value_heads"] > 1
    return {
        "new_decoder_architecture": several,
        "multi_query": not several,
        "num_ln_in_parallel_attn": (2 if facts.has("attn_norm_2.weight") else 1) if several else None,
    }


def mpt(facts: Facts) -> Mapping[str, Any]:
    """MPT's object about attention."""
    bias = facts.header.number(facts.key("attention.max_alibi_bias")) or 0.0
    kv_heads = facts.config["num_key_value_heads"]
    kinds = {facts.config["num_attention_heads"]: "multihead_attention", 1: "multiquery_attention"}
    attention: dict[str, Any] = {
        "attn_type": kinds.get(kv_heads, "grouped_query_attention"),
        "kv_n_heads": kv_heads,
        "qk_ln": facts.has("attn_q_norm.weight"),
        "alibi": bias > 0,
        "alibi_bias_max": bias or 8,
        "clip_qkv": facts.header.number(facts.key("attention.clamp_kqv")) or None,
    }
    return {
        "attn_config": attention,
        "learned_pos_emb": facts.has("position_embd.weight"),
        "no_bias": not facts.has("attn_qkv.bias"),
        "expansion_ratio": facts.config["intermediate_size"] // facts.config["hidden_size"],
    }


def olmo3(facts: Facts) -> Mapping[str, Any]:
    """OLMo 2 with a window is OLMo 3."""
    found = window(4)(facts)
    if found["sliding_window"] is None:
        return {}
    return {"architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", **found}


def glm(facts: Facts) -> Mapping[str, Any]:
    """GLM's bias, in files whose queries, keys and values are fused too."""
    return {"attention_bias": facts.has("attn_q.bias") or facts.has("attn_qkv.bias")}


def no_rope_layers(facts: Facts) -> Mapping[str, Any]:
    """SmolLM3: every fourth layer rotates nothing."""
    return {"no_rope_layers": [int((layer + 1) % 4 != 0) for layer in range(facts.config["num_hidden_layers"])]}


def temperature(facts: Facts) -> Mapping[str, Any]:
    """Ministral 3: one object for the rotary embedding and for how queries grow with the position.

    Without that object, its models would be taken for such with the usual scaling.
    """
    given: dict[str, Any] = {"rope_theta": facts.config["rope_theta"], **(facts.config["rope_scaling"] or {})}
    beta = facts.header.number(facts.key("attention.temperature_scale"))
    if beta:
        given["llama_4_scaling_beta"] = beta
    multiplier = facts.header.number(facts.key("rope.scaling.yarn_log_multiplier"))
    if multiplier:
        given |= {"mscale": 1.0, "mscale_all_dim": multiplier}
    return {"rope_scaling": None, "rope_parameters": {"rope_type": "default", **given}}


def baichuan(facts: Facts) -> Mapping[str, Any]:
    """The larger model has ALiBi, which its files do not say: ggml's runtime knows it by its layers too."""
    if facts.config["num_hidden_layers"] != _ALIBI_LAYERS:
        return {}
    return {"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", "position_embedding": "ALIBI", **_APART}


_ALIBI_LAYERS = 40
_APART = {"qkv_fused": False}


def qwen1(facts: Facts) -> Mapping[str, Any]:
    """Qwen 1 has a bias for queries, keys and values always, for the other projections by its file."""
    return {"no_bias": not facts.has("attn_output.bias")}


def jais(facts: Facts) -> Mapping[str, Any]:
    """Refuse Jais with slopes other than usual; the factors of embedding and head are in their weights."""
    bias = facts.header.number(facts.key("attention.max_alibi_bias")) or _ALIBI_BIAS
    if bias != _ALIBI_BIAS:
        what = f"{facts.key('attention.max_alibi_bias')} is {bias:g}, and only {_ALIBI_BIAS:g} is supported"
        raise unsupported(facts.header.path, what, "Serve the model from a safetensors checkpoint instead.")
    return {"mup_scale_qk_dot_prod": True}


_ALIBI_BIAS = 8.0


def deci(facts: Facts) -> Mapping[str, Any]:
    """Nemotron-NAS: what each layer is made of; one without heads has a linear layer in their place, or nothing."""
    kv_heads = by_layer(facts.header, facts.arch, "attention.head_count_kv", facts.config["num_key_value_heads"])
    sizes = by_layer(facts.header, facts.arch, "feed_forward_length")
    blocks = []
    for layer, (heads, size) in enumerate(zip(kv_heads, sizes, strict=True)):
        attention: dict[str, Any] = {"num_key_value_heads": heads}
        if not heads:
            linear = f"blk.{layer}.attn_output.weight" in facts.tensors
            attention = {"replace_with_linear": True} if linear else {"no_op": True}
        blocks.append({"attention": attention, "ffn": {"intermediate_size": size} if size else {"no_op": True}})
    return {"block_configs": blocks}
