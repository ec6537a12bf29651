"""Qwen3-Next and Qwen3.5: most layers are linear attention by a gated delta rule, some attend behind a gate."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from core_plugin_decoder import (
    FULL,
    MLP,
    Attention,
    CausalLM,
    Decoder,
    Fields,
    HeadNorm,
    Layer,
    Mixture,
    Norm,
    Recurrence,
    shape_of,
)
from core_plugin_decoder.delta import DeltaSizes

from core.api import CheckpointError, RopeConfig, Routing, config_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs

LINEAR = "linear_attention"

_NEXT = {
    "head_dim": 256,
    "num_key_value_heads": 2,
    "intermediate_size": 5632,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "norm_topk_prob": True,
}
_DENSE = {"head_dim": 256, "num_key_value_heads": 4, "intermediate_size": 12288}
_EXPERTS = {"head_dim": 256, "num_key_value_heads": 2, "num_experts": 256, "num_experts_per_tok": 8}
"""Defaults of transformers for keys that a configuration lacks."""

_NESTED = "model.language_model"
"""The text decoder in multimodal checkpoints."""

_MULTIMODAL = ("mrope_section", "mrope_interleaved")
"""Of rotary parameters: how positions in images are rotated. Text has one position for all sections."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = _fields(config)
    rope, eps = given.rope(partial=0.25), given.number("rms_norm_eps", 1e-6, least=0.0)
    sparse, kinds = _sparse(given), _kinds(given)
    nested = given.architecture.endswith("ForConditionalGeneration")
    layers = tuple(
        Layer(
            attention=_linear(given, eps) if kind == LINEAR else _attention(given, rope, eps),
            mlp=_mixture(given) if index in sparse else _mlp(given, given.integer("intermediate_size")),
            before_attention=Norm(name="input_layernorm", eps=eps, offset=1.0),
            before_mlp=Norm(name="post_attention_layernorm", eps=eps, offset=1.0),
        )
        for index, kind in enumerate(kinds)
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps, offset=1.0),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        root=_NESTED if nested else "model",
        renames=() if nested else ((f"{_NESTED}.", "model."),),
        skips=("mtp.*", "model.visual.*"),
        experts=_STACKED if _is_stacked(given) else (),
    )


_STACKED = tuple((f".mlp.experts.{name}", f".mlp.experts.{{}}.{name}.weight") for name in ("gate_up_proj", "down_proj"))
"""Checkpoints of the multimodal architecture hold the weights of all experts of a layer in two tensors."""


shape = shape_of(read)


class QwenNext(CausalLM):
    """The architectures."""

    describe = staticmethod(read)


def _fields(config: Mapping[str, Any]) -> Fields:
    """Return the text decoder's configuration with what it lacks."""
    inner = {key: value for key, value in config_object(config, "text_config").items() if key != "architectures"}
    both = {**config, **inner}
    if isinstance(both.get("rope_parameters"), Mapping):
        kept = {key: value for key, value in both["rope_parameters"].items() if key not in _MULTIMODAL}
        both["rope_parameters"] = kept
    name = Fields(config, "Qwen3NextForCausalLM").architecture
    usual = _NEXT if name.startswith("Qwen3Next") else _EXPERTS if name.startswith("Qwen3_5Moe") else _DENSE
    given = Fields({**usual, **both}, name)
    given.expect("attn_output_gate", True)
    given.expect("hidden_act", "silu")
    return given


def _is_next(given: Fields) -> bool:
    return given.architecture.startswith("Qwen3Next")


def _is_stacked(given: Fields) -> bool:
    return given.architecture.endswith("MoeForConditionalGeneration")


def _kinds(given: Fields) -> tuple[str, ...]:
    """Return the kind of each layer: `layer_types`, or every so many-th attends."""
    count, listed = given.layers(), given.config.get("layer_types")
    if listed is None:
        every = given.integer("full_attention_interval", 4)
        return tuple(LINEAR if (index + 1) % every else FULL for index in range(count))
    if not isinstance(listed, list) or len(listed) != count or not set(listed) <= {LINEAR, FULL}:
        raise CheckpointError("CORE-M126", f"'layer_types' must name {count} layers as {LINEAR} or {FULL}.")
    return tuple(listed)


def _sparse(given: Fields) -> frozenset[int]:
    """Return the layers with experts: every so many-th, but for those that are named; Qwen3.5: all, or none."""
    count = given.layers()
    if not _is_next(given):
        return frozenset(range(count if given.architecture.startswith("Qwen3_5Moe") else 0))
    if not given.count("num_experts", 0, most=1 << 16):
        return frozenset()
    every, dense = given.integer("decoder_sparse_step", 1), given.integers("mlp_only_layers")
    return frozenset(index for index in range(count) if index not in dense and (index + 1) % every == 0)


def _attention(given: Fields, rope: RopeConfig, eps: float) -> Attention:
    size, bias = given.head_dim(), given.flag("attention_bias")
    return Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=size,
        scale=size**-0.5,
        bias=bias,
        output_bias=bias,
        rope=rope,
        q_norm=HeadNorm(norm=Norm(name="q_norm", eps=eps, offset=1.0)),
        k_norm=HeadNorm(norm=Norm(name="k_norm", eps=eps, offset=1.0)),
        gated_queries=True,
    )


def _linear(given: Fields, eps: float) -> Recurrence:
    sizes = DeltaSizes(
        key_heads=given.integer("linear_num_key_heads", 16),
        heads=given.integer("linear_num_value_heads", 32),
        key_dim=given.integer("linear_key_head_dim", 128),
        value_dim=given.integer("linear_value_head_dim", 128),
        width=given.integer("linear_conv_kernel_dim", 4),
        eps=eps,
    )
    if sizes.heads % sizes.key_heads:
        name = f"'linear_num_value_heads' is {sizes.heads}"
        raise CheckpointError("CORE-M126", f"{name}, which {sizes.key_heads} ('linear_num_key_heads') cannot share.")
    hidden, values = ("hidden_size", given.integer("hidden_size")), ("all value heads", sizes.values)
    channels = ("all heads of queries, keys and values", sizes.channels)
    weights = (
        ("conv1d", (channels, ("1", 1), ("linear_conv_kernel_dim", sizes.width))),
        ("norm", (("linear_value_head_dim", sizes.value_dim),)),
        ("out_proj", (hidden, values)),
    )
    return Recurrence(name="linear_attn", make=partial(_made, sizes=sizes, grouped=_is_next(given)), weights=weights)


def _made(
    build: LayerBuilder, hidden_size: int, path: str, *, sizes: DeltaSizes, grouped: bool
) -> Callable[[Tensor, StepInputs], Tensor]:
    from core_plugin_qwen_next.mixer import GatedDelta

    return GatedDelta(build, hidden_size, path, sizes, grouped)


def _mlp(given: Fields, size: int, name: str = "mlp") -> MLP:
    return MLP(size=size, activation=given.text("hidden_act", "silu"), name=name)


def _mixture(given: Fields) -> Mixture:
    stacked = _is_stacked(given)
    renormalize = given.flag("norm_topk_prob", default=True) if _is_next(given) else True
    return Mixture(
        experts=given.integer("num_experts"),
        size=given.integer("moe_intermediate_size", 512),
        routing=Routing(top_k=given.integer("num_experts_per_tok"), renormalize=renormalize),
        activation=given.text("hidden_act", "silu"),
        shared=_mlp(given, given.integer("shared_expert_intermediate_size", 512), "shared_expert"),
        shared_gate="shared_expert_gate",
        parts=("gate_up_proj",) if stacked else ("gate_proj", "up_proj"),
        fused="halves" if stacked else None,
    )
