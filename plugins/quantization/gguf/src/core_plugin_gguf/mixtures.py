"""Configuration keys of mixtures of experts and of latent attention, from GGUF metadata. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core_plugin_gguf.faults import damaged, unsupported
from core_plugin_gguf.reads import FULL, SLIDING, experts, flag, number

if TYPE_CHECKING:
    from core_plugin_gguf.architecture import Facts, Read

ROUTER = "ffn_gate_inp"
"""Module that a block has if it has experts."""

_CHUNK = 8192
_GATINGS = {1: "softmax", 2: "sigmoid"}
"""ggml's numbers of the functions of the router's logits."""


def count(key: str, name: str, default: int = 0) -> Read:
    """Return what reads a whole number, which may be 0."""

    def read(facts: Facts) -> Mapping[str, Any]:
        value = facts.header.integer(facts.key(key))
        if value is not None and value < 0:
            raise damaged(facts.header.path, f"{facts.key(key)} is {value}")
        return {name: default if value is None else value}

    return read


def gating(facts: Facts) -> str:
    """Return the function of the router's logits, `softmax` or `sigmoid`.

    Old files do not say it: models whose choice is corrected by biases have sigmoids.

    Raises:
        CheckpointError: CORE-M140, it is another one.
    """
    value = facts.header.integer(facts.key("expert_gating_func"))
    if not value:
        corrected = any(name.endswith(".exp_probs_b.bias") for name in facts.tensors)
        return "sigmoid" if corrected else "softmax"
    if value not in _GATINGS:
        what = f"{facts.key('expert_gating_func')} is {value}; supported are {_GATINGS}"
        raise unsupported(facts.header.path, what, "Serve the model from a safetensors checkpoint instead.")
    return _GATINGS[value]


def gated_by(due: str, name: str | None = None) -> Read:
    """Return what refuses files with another function of the logits, and says it as `name`."""

    def read(facts: Facts) -> Mapping[str, Any]:
        found = gating(facts)
        if found != due:
            what = f"its experts are chosen by {found}, and those of {facts.arch} by {due}"
            raise unsupported(facts.header.path, what, "Serve the model from a safetensors checkpoint instead.")
        return {} if name is None else {name: found}

    return read


def sparse(facts: Facts) -> list[bool]:
    """Return which layers have experts, by their tensors."""
    layers = range(facts.config["num_hidden_layers"])
    return [f"blk.{layer}.{ROUTER}.weight" in facts.tensors for layer in layers]


def grouped(facts: Facts) -> Mapping[str, Any]:
    """How experts are chosen in groups and weighed, and how many layers are dense, by DeepSeek's keys."""
    found: dict[str, Any] = {}
    for read in (
        count("expert_group_count", "n_group", 1),
        count("expert_group_used_count", "topk_group", 1),
        count("leading_dense_block_count", "first_k_dense_replace"),
        flag("expert_weights_norm", "norm_topk_prob", default=False),
        number("expert_weights_scale", "routed_scaling_factor", 1.0),
    ):
        found |= read(facts)
    return {**found, "num_nextn_predict_layers": 0}


GROUPED: tuple[Read, ...] = (
    *experts("n_routed_experts", expert_feed_forward_length="moe_intermediate_size"),
    count("expert_shared_count", "n_shared_experts"),
    grouped,
)
"""The experts of DeepSeek V3, and of what has its keys."""


def latent(facts: Facts) -> Mapping[str, Any]:
    """Sizes of latent attention; older files have them without the suffix, and no `value_length` either."""
    header, key = facts.header, facts.key
    rotated = header.positive_integer(key("rope.dimension_count"))
    size, heads = facts.config["head_dim"], facts.config["num_attention_heads"]
    output = facts.tensors.get("blk.0.attn_output.weight")
    if size <= rotated or output is None:
        raise damaged(header.path, f"of the {size} numbers of a head {rotated} are rotated, or attention has no output")
    queries = header.integer(key("attention.q_lora_rank"))
    return {
        "head_dim": rotated,
        "num_key_value_heads": heads,
        "kv_lora_rank": header.positive_integer(key("attention.kv_lora_rank")),
        "q_lora_rank": queries or None,
        "qk_nope_head_dim": size - rotated,
        "qk_rope_head_dim": rotated,
        "v_head_dim": output.shape[1] // heads,
        "attention_bias": facts.has("attn_kv_a_mqa.bias"),
        "rope_scaling": _stretched(facts),
    }


def _stretched(facts: Facts) -> dict[str, Any] | None:
    """Return the rotary scaling: sines and cosines keep their magnitude, and scores grow with the factor."""
    scaling = facts.config["rope_scaling"]
    if scaling is None or scaling["rope_type"] != "yarn":
        return scaling
    # The file has a tenth of it, which is the factor of the logarithm.
    share = 10 * (facts.header.number(facts.key("rope.scaling.yarn_log_multiplier")) or 0.0)
    own = {"mscale": share, "mscale_all_dim": share} if share else {"attention_factor": 1.0}
    return {**scaling, **own}


def picks(facts: Facts) -> Mapping[str, Any]:
    """The index of sparse latent attention: its sizes, and which layers have one of their own."""
    header, key, layers = facts.header, facts.key, range(facts.config["num_hidden_layers"])
    listed = header.numbers(key("attention.indexer.types")) if header.is_array(key("attention.indexer.types")) else None
    own = [f"blk.{layer}.indexer.proj.weight" in facts.tensors for layer in layers]
    if listed is not None and len(listed) < len(own):
        raise damaged(header.path, f"{key('attention.indexer.types')} has {len(listed)} entries for {len(own)} layers")
    return {
        "index_n_heads": header.positive_integer(key("attention.indexer.head_count")),
        "index_head_dim": header.positive_integer(key("attention.indexer.key_length")),
        "index_topk": header.positive_integer(key("attention.indexer.top_k")),
        "indexer_types": ["full" if one else "shared" for one in (listed or own)[: len(own)]],
    }


def deepseek(facts: Facts) -> Mapping[str, Any]:
    """DeepSeek V3, or V2, whose experts are chosen by their shares; a file may have no experts at all."""
    found: dict[str, Any] = {**latent(facts), **grouped(facts), "rope_interleave": True}
    if not facts.header.integer(facts.key("expert_count")):
        return {**found, "first_k_dense_replace": facts.config["num_hidden_layers"]}
    for read in GROUPED:
        found |= read(facts)
    if gating(facts) == "sigmoid":
        return found
    method = "group_limited_greedy" if found["n_group"] > 1 else "greedy"
    return {**found, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "topk_method": method}


def granite_moe(facts: Facts) -> Mapping[str, Any]:
    """Granite's mixture, perhaps beside an MLP that all tokens share."""
    size = facts.header.integer(facts.key("expert_shared_feed_forward_length"))
    if not size:
        return {"experts_fused": False}
    return {
        "architectures": ["GraniteMoeSharedForCausalLM"],
        "model_type": "granitemoeshared",
        "shared_intermediate_size": size,
        "experts_fused": False,
    }


def gpt_oss(facts: Facts) -> Mapping[str, Any]:
    """The ramp of gpt-oss' rotary scaling begins and ends between two dimensions."""
    scaling = facts.config["rope_scaling"]
    return {"experts_fused": False, "rope_scaling": scaling and {**scaling, "truncate": False}}


def ernie(facts: Facts) -> Mapping[str, Any]:
    """Which layers of ERNIE 4.5 have experts; the last one of them is known by its tensors."""
    last = max((layer for layer, has in enumerate(sparse(facts)) if has), default=-1)
    return {"moe_layer_end_index": last}


def llama4(facts: Facts) -> Mapping[str, Any]:
    """Llama 4: sizes of both kinds of MLPs, and what ggml's runtime knows without the file saying it."""
    header, layers = facts.header, facts.config["num_hidden_layers"]
    found: dict[str, Any] = {
        "intermediate_size": header.positive_integer(facts.key("expert_feed_forward_length")),
        "intermediate_size_mlp": facts.config["intermediate_size"],
        "interleave_moe_layer_step": header.positive_integer(facts.key("interleave_moe_layer_step"), 1),
        "attention_chunk_size": _CHUNK,
        # The model with 128 experts has no norms of queries and keys.
        "use_qk_norm": header.integer(facts.key("expert_count")) != _LARGER,
        "experts_fused": False,
    }
    if header.integer(facts.key("attention.sliding_window")) == 0:
        found["layer_types"] = [FULL] * layers
    return found


_LARGER = 128


def mimo(facts: Facts) -> Mapping[str, Any]:
    """MiMo-V2-Flash: which layers have windows, and experts, and the heads of keys of either kind."""
    header, layers = facts.header, facts.config["num_hidden_layers"]
    windows = (header.numbers(facts.key("attention.sliding_window_pattern")) or [])[:layers]
    heads = (header.numbers(facts.key("attention.head_count_kv")) or [])[:layers]
    by_kind = {bool(slides): int(count) for slides, count in zip(windows, heads, strict=False)}
    if len(windows) != layers or len(heads) != layers or set(by_kind) != {True, False}:
        raise damaged(header.path, f"windows and heads of keys are not those of {layers} layers of two kinds")
    found: dict[str, Any] = {
        "layer_types": [SLIDING if slides else FULL for slides in windows],
        "mlp_layer_types": ["sparse" if has else "dense" for has in sparse(facts)],
        "num_key_value_heads": by_kind[False],
        "swa_num_key_value_heads": by_kind[True],
        "v_head_dim": header.positive_integer(facts.key("attention.value_length")),
        # It counts the tokens before a query.
        "sliding_window_size": header.positive_integer(facts.key("attention.sliding_window")),
        "swa_rope_theta": header.positive_number(facts.key("rope.freq_base_swa"), 1e4, least=1.0, most=1e12),
        "norm_topk_prob": True,
    }
    scale = header.number(facts.key("attention.value_scale"))
    return found if scale is None else {**found, "attention_value_scale": scale}


def dbrx(facts: Facts) -> Mapping[str, Any]:
    """DBRX's objects about attention and experts."""
    attention = {
        "clip_qkv": facts.header.number(facts.key("attention.clamp_kqv")) or None,
        "kv_n_heads": facts.config["num_key_value_heads"],
    }
    found: dict[str, Any] = {"ffn_hidden_size": facts.config["intermediate_size"]}
    for read in experts("moe_num_experts", "moe_top_k"):
        found |= read(facts)
    return {"attn_config": attention, "ffn_config": found, "experts_fused": False}


def grok(facts: Facts) -> Mapping[str, Any]:
    """Grok: factors and caps; Grok-2 has an MLP beside the experts, whose size is then another."""
    found: dict[str, Any] = {
        "residual_moe": facts.has("ffn_up.weight"),
        # The converter takes the plain embedding of Grok-2 (`original`) for a scaled one.
        "rope_scaling": None,
        "attn_temperature_len": facts.header.integer(facts.key("attention.temperature_length")) or -1,
    }
    size = facts.header.integer(facts.key("expert_feed_forward_length"))
    if size:
        found["moe_intermediate_size"] = size
    for key, name in _FACTORS.items():
        value = facts.header.number(facts.key(key))
        if value:
            found[name] = value
    return found


_FACTORS = {
    "embedding_scale": "embedding_multiplier_scale",
    "logit_scale": "output_multiplier_scale",
    "attention.output_scale": "attn_output_multiplier",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "router_logit_softcapping": "router_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}


def bailing2(facts: Facts) -> Mapping[str, Any]:
    """Ling 2: its shared experts are one MLP, whose size is not a multiple of the others'."""
    shared = facts.header.integer(facts.key("expert_shared_count")) or 0
    found = {"num_shared_experts": shared, "use_qk_norm": facts.has("attn_q_norm.weight")}
    layer = next((layer for layer, has in enumerate(sparse(facts)) if has), 0)
    tensor = facts.tensors.get(f"blk.{layer}.ffn_up_shexp.weight")
    if shared and tensor is not None:
        found["moe_shared_expert_intermediate_size"] = tensor.shape[0] // shared
    return found
