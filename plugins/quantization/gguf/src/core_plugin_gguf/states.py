"""Configuration keys of state spaces, and of hybrids of them and attention, from GGUF metadata. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from core_plugin_gguf.faults import damaged, unsupported

if TYPE_CHECKING:
    from core_plugin_gguf.architecture import Facts

_SIZES: Mapping[str, str] = {
    "ssm.inner_size": "inner",
    "ssm.state_size": "state",
    "ssm.conv_kernel": "width",
    "ssm.time_step_rank": "rank",
}


def flat(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in one dimension."""
    return (prod(shape),)


def kernel(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a convolution's weight, `(channels, 1, width)`; files may lack the ones, or have more."""
    return (prod(shape) // shape[-1], 1, shape[-1])


def sizes(facts: Facts) -> dict[str, int]:
    """Return `inner`, `state`, `width`, `rank` and `groups`. Raises `CheckpointError` CORE-M141: one is missing."""
    header, key = facts.header, facts.key
    found = {name: header.positive_integer(key(own)) for own, name in _SIZES.items()}
    return {**found, "groups": header.positive_integer(key("ssm.group_count"), 1)}


def has(facts: Facts, module: str) -> bool:
    """Say whether any block has a tensor (`ssm_in.bias`)."""
    return any(name.startswith("blk.") and name.endswith(f".{module}") for name in facts.tensors)


def where(facts: Facts, module: str) -> list[int]:
    """Return the layers that have a module."""
    layers = range(facts.config["num_hidden_layers"])
    return [layer for layer in layers if f"blk.{layer}.{module}.weight" in facts.tensors]


def mamba(facts: Facts) -> Mapping[str, Any]:
    """Mamba, or FalconMamba, which has norms without weights in the mixer."""
    given = sizes(facts)
    found: dict[str, Any] = {
        "intermediate_size": given["inner"],
        "state_size": given["state"],
        "conv_kernel": given["width"],
        "time_step_rank": given["rank"],
        "use_bias": has(facts, "ssm_in.bias"),
        "use_conv_bias": has(facts, "ssm_conv1d.bias"),
    }
    if facts.header.flag(facts.key("ssm.dt_b_c_rms")):
        found |= {"architectures": ["FalconMambaForCausalLM"], "model_type": "falcon_mamba"}
    return found


def mamba2(facts: Facts) -> Mapping[str, Any]:
    """Mamba-2."""
    given, hidden = sizes(facts), facts.config["hidden_size"]
    return {
        **_heads(facts, given, "num_heads", "head_dim"),
        "expand": _expansion(facts, given["inner"], hidden),
        "n_groups": given["groups"],
        "state_size": given["state"],
        "conv_kernel": given["width"],
        "use_bias": has(facts, "ssm_in.bias"),
        "use_conv_bias": has(facts, "ssm_conv1d.bias"),
    }


def falcon_h1(facts: Facts) -> Mapping[str, Any]:
    """Falcon-H1, whose factors are in its weights."""
    given = sizes(facts)
    return {
        "mamba_d_ssm": given["inner"],
        "mamba_n_heads": given["rank"],
        "mamba_n_groups": given["groups"],
        "mamba_d_state": given["state"],
        "mamba_d_conv": given["width"],
        "mamba_rms_norm": has(facts, "ssm_norm.weight"),
        "mamba_norm_before_gate": False,
        "mamba_conv_bias": has(facts, "ssm_conv1d.bias"),
        "mamba_proj_bias": has(facts, "ssm_in.bias"),
        "projectors_bias": has(facts, "ssm_out.bias"),
        "attention_bias": has(facts, "attn_q.bias"),
        "mlp_bias": has(facts, "ffn_up.bias"),
    }


def jamba(facts: Facts) -> Mapping[str, Any]:
    """Jamba: every so many-th layer attends, and every so many-th has experts."""
    given, chosen = sizes(facts), where(facts, "ffn_gate_inp")
    period, offset = _turn(facts, where(facts, "attn_q"), "attend")
    found: dict[str, Any] = {
        "attn_layer_period": period,
        "attn_layer_offset": offset,
        "num_experts": 1,
        "num_experts_per_tok": 1,
        "mamba_expand": _expansion(facts, given["inner"], facts.config["hidden_size"]),
        "mamba_d_state": given["state"],
        "mamba_d_conv": given["width"],
        "mamba_dt_rank": given["rank"],
        "mamba_conv_bias": has(facts, "ssm_conv1d.bias"),
        "mamba_proj_bias": has(facts, "ssm_in.bias"),
    }
    if chosen:
        period, offset = _turn(facts, chosen, "have experts")
        found |= {
            "expert_layer_period": period,
            "expert_layer_offset": offset,
            "num_experts": facts.header.positive_integer(facts.key("expert_count")),
            "num_experts_per_tok": facts.header.positive_integer(facts.key("expert_used_count")),
        }
    return found


def granite_hybrid(facts: Facts) -> Mapping[str, Any]:
    """Granite's hybrids, and Bamba, whose attention rotates and whose factors are 1."""
    header, key, given = facts.header, facts.key, sizes(facts)
    attends, shared = where(facts, "attn_q"), header.integer(key("expert_shared_feed_forward_length"))
    rotates = header.flag(key("rope.scaling.finetuned")) is not False
    layers = range(facts.config["num_hidden_layers"])
    return {
        "layer_types": ["full_attention" if layer in attends else "linear_attention" for layer in layers],
        "position_embedding_type": "rope" if rotates else "nope",
        "num_local_experts": header.integer(key("expert_count")) or 0,
        "num_experts_per_tok": header.integer(key("expert_used_count")) or 0,
        "shared_intermediate_size": shared or facts.config["intermediate_size"],
        "experts_fused": False,
        "mamba_expand": _expansion(facts, given["inner"], facts.config["hidden_size"]),
        "mamba_n_heads": given["rank"],
        "mamba_n_groups": given["groups"],
        "mamba_d_state": given["state"],
        "mamba_d_conv": given["width"],
        "mamba_conv_bias": has(facts, "ssm_conv1d.bias"),
        "mamba_proj_bias": has(facts, "ssm_in.bias"),
        "attention_bias": has(facts, "attn_q.bias"),
        "mlp_bias": has(facts, "ffn_up.bias"),
    }


def nemotron_h(facts: Facts) -> Mapping[str, Any]:
    """Nemotron-H: what each layer is, by its tensors."""
    given = sizes(facts)
    kinds = {"ssm_in": "mamba", "attn_q": "attention", "ffn_gate_inp": "moe", "ffn_up": "mlp"}
    layers: list[str] = []
    for layer in range(facts.config["num_hidden_layers"]):
        found = [kind for module, kind in kinds.items() if f"blk.{layer}.{module}.weight" in facts.tensors]
        if not found:
            raise damaged(facts.header.path, f"block {layer} has none of {', '.join(kinds)}")
        layers.append(found[0])
    heads = _heads(facts, given, "mamba_num_heads", "mamba_head_dim")
    # Files give a size to layers of experts alone, or of MLPs alone.
    dense = {"intermediate_size": _rows(facts, layers.index("mlp"), "ffn_up")} if "mlp" in layers else {}
    return {
        **heads,
        **dense,
        "layers_block_type": layers,
        "n_groups": given["groups"],
        "ssm_state_size": given["state"],
        "conv_kernel": given["width"],
        "use_bias": has(facts, "ssm_in.bias"),
        "use_conv_bias": has(facts, "ssm_conv1d.bias"),
        "mlp_bias": has(facts, "ffn_up.bias") or has(facts, "ffn_up_shexp.bias"),
    }


def _rows(facts: Facts, layer: int, module: str) -> int:
    return facts.tensors[f"blk.{layer}.{module}.weight"].shape[0]


def _heads(facts: Facts, given: Mapping[str, int], count: str, size: str) -> dict[str, int]:
    """Return the number of heads of a mixer, and the size of one. Raises `CheckpointError` CORE-M141: they differ."""
    inner, heads = given["inner"], given["rank"]
    if inner % heads:
        raise damaged(facts.header.path, f"{facts.key('ssm.time_step_rank')} is {heads}, which does not divide {inner}")
    return {count: heads, size: inner // heads}


def _expansion(facts: Facts, inner: int, hidden: int) -> int:
    """Return how many times wider the mixer is than the model."""
    if inner % hidden:
        what = f"{facts.key('ssm.inner_size')} is {inner}, no multiple of the {hidden} numbers of a hidden state"
        raise unsupported(facts.header.path, what, "Serve the model from a safetensors checkpoint instead.")
    return inner // hidden


def _turn(facts: Facts, layers: list[int], do: str) -> tuple[int, int]:
    """Return period and offset of layers. Raises `CheckpointError` CORE-M140: they are no regular ones."""
    count = facts.config["num_hidden_layers"]
    if layers:
        period = layers[1] - layers[0] if len(layers) > 1 else max(count - layers[0], layers[0] + 1)
        if layers[0] < period and layers == list(range(layers[0], count, period)):
            return period, layers[0]
    what = f"of its {count} layers those that {do} ({layers}) are not every so many-th one"
    raise unsupported(facts.header.path, what, "Serve the model from a safetensors checkpoint instead.")
