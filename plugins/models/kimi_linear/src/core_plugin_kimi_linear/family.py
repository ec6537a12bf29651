"""Kimi Linear: delta rules and latent attention without positions, and mixtures of experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from core_plugin_decoder import (
    FULL,
    MLP,
    CausalLM,
    Decoder,
    Fields,
    LatentAttention,
    Layer,
    Mixture,
    Norm,
    Recurrence,
    grouped_routing,
    shape_of,
)
from core_plugin_decoder.delta import DeltaSizes

from core.api import CheckpointError, config_int, config_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs

LINEAR = "linear_attention"
DENSE, SPARSE = "dense", "sparse"

_KEYS = {
    "max_position_embeddings": "model_max_length",
    "num_experts_per_tok": "num_experts_per_token",
    "n_group": "num_expert_group",
    "norm_topk_prob": "moe_renormalize",
    "n_shared_experts": "num_shared_experts",
    "num_local_experts": "num_experts",
}
_USUAL = {
    "num_local_experts": 256,
    "moe_intermediate_size": 1024,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.446,
}
_LATENT = {
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
"""Defaults of transformers for keys that a configuration lacks."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **config}, "KimiLinearForCausalLM", _KEYS)
    given.expect("mla_use_nope", True)
    given.expect("moe_router_activation_func", "sigmoid")
    given.expect("moe_layer_freq", 1)
    given.expect("hidden_act", "silu")
    eps = given.number("rms_norm_eps", 1e-5, least=0.0)
    linear, full, mixture = _linear(given, eps), _latent(given), _mixture(given)
    dense = MLP(size=given.integer("intermediate_size"))
    layers = tuple(
        Layer(
            attention=linear if kind == LINEAR else full,
            mlp=mixture if sparse == SPARSE else dense,
            before_attention=Norm(name="input_layernorm", eps=eps),
            before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        )
        for kind, sparse in zip(_kinds(given), _mlps(given), strict=True)
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=given.positions(1 << 20),
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        renames=tuple(
            (f"model.layers.*.block_sparse_moe.{name}.", f"model.layers.*.mlp.{name}.")
            for name in ("gate_proj", "up_proj", "down_proj")  # as transformers writes dense layers
        ),
    )


shape = shape_of(read)


class KimiLinear(CausalLM):
    """The architecture."""

    describe = staticmethod(read)


def _kinds(given: Fields) -> tuple[str, ...]:
    """Return the kind of each layer: `layer_types`, or as `linear_attn_config` lists them, counted from 1."""
    count, inner = given.layers(), config_object(given.config, "linear_attn_config")
    if given.config.get("layer_types") is not None:
        return _listed(given, "layer_types", (LINEAR, FULL))
    linear, full = inner.get("kda_layers"), inner.get("full_attn_layers")
    if linear is None and full is None:
        return tuple(FULL if index and index % 4 == 0 else LINEAR for index in range(count))
    linear, full = linear or [], full or []
    if sorted(chain(linear, full)) != list(range(1, count + 1)):
        text = f"'kda_layers' and 'full_attn_layers' of 'linear_attn_config' must name each of {count} layers once."
        raise CheckpointError("CORE-M126", text)
    return tuple(LINEAR if index + 1 in linear else FULL for index in range(count))


def _mlps(given: Fields) -> tuple[str, ...]:
    """Return which layers are dense: those that `mlp_layer_types` names, or the first few."""
    if given.config.get("mlp_layer_types") is not None:
        return _listed(given, "mlp_layer_types", (DENSE, SPARSE))
    first = given.count("first_k_dense_replace", 1)
    return tuple(DENSE if index < first else SPARSE for index in range(given.layers()))


def _listed(given: Fields, name: str, known: tuple[str, str]) -> tuple[str, ...]:
    listed, count = given.config[name], given.layers()
    if not isinstance(listed, list) or len(listed) != count or not set(listed) <= set(known):
        raise CheckpointError("CORE-M126", f"'{name}' must name {count} layers as {known[0]} or {known[1]}.")
    return tuple(listed)


def _latent(given: Fields) -> LatentAttention:
    return replace(given.latent(_LATENT, interleaved=False), rope=None)


def _linear(given: Fields, eps: float) -> Recurrence:
    inner = config_object(given.config, "linear_attn_config")
    size = config_int(inner, "head_dim", given.integer("linear_head_dim", 128))
    heads = config_int(inner, "num_heads", given.integer("linear_num_heads", 32))
    width = config_int(inner, "short_conv_kernel_size", given.integer("linear_conv_kernel_dim", 4))
    sizes = DeltaSizes(key_heads=heads, heads=heads, key_dim=size, value_dim=size, width=width, eps=eps)
    hidden, wide = ("hidden_size", given.integer("hidden_size")), ("num_heads * head_dim", heads * size)
    conv = (wide, ("1", 1), ("short_conv_kernel_size", width))
    weights = (
        *((name, (wide, hidden)) for name in ("q_proj", "k_proj", "v_proj")),
        *((name, conv) for name in ("q_conv1d", "k_conv1d", "v_conv1d")),
        ("f_b_proj", (wide, ("head_dim", size))),
        ("o_norm", (("head_dim", size),)),
        ("o_proj", (hidden, wide)),
    )
    return Recurrence(name="self_attn", make=partial(_made, sizes=sizes), weights=weights)


def _made(
    build: LayerBuilder, hidden_size: int, path: str, *, sizes: DeltaSizes
) -> Callable[[Tensor, StepInputs], Tensor]:
    from core_plugin_kimi_linear.mixer import KimiDelta

    return KimiDelta(build, hidden_size, path, sizes)


def _mixture(given: Fields) -> Mixture:
    experts, size = given.integer("num_local_experts"), given.integer("moe_intermediate_size")
    shared = given.count("n_shared_experts", 1) * size
    return Mixture(
        experts=experts,
        size=size,
        routing=grouped_routing(given, experts),
        name="block_sparse_moe",
        correction="gate.e_score_correction_bias",
        parts=("w1", "w3"),
        down="w2",
        shared=MLP(size=shared, name="shared_experts") if shared else None,
    )
