"""K2 Horizon without experts: norms by groups, and gates behind attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, HeadNorm, Layer, Norm, shape_of

from core.api import MOST_LAYERS, CheckpointError, RopeConfig

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder
    from core.api.layers import Activation


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "K2HorizonForCausalLM")
    _refuse_experts(given)
    eps, hidden = given.number("rms_norm_eps", 1e-6, least=0.0), given.integer("hidden_size")
    groups = given.integer("layernorm_num_groups", 1)
    if hidden % groups:
        raise CheckpointError("CORE-M126", f"'hidden_size' {hidden} is no multiple of 'layernorm_num_groups' {groups}.")
    rope, bias = _rope(given), given.flag("attention_bias")
    normed = given.flag("query_key_norm", default=True)
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=given.head_dim(),
            scale=given.head_dim() ** -0.5,
            bias=bias,
            output_bias=bias,
            rope=rope,
            q_norm=HeadNorm(norm=Norm(name="q_norm", eps=eps), over="own", flat=True) if normed else None,
            k_norm=HeadNorm(norm=Norm(name="k_norm", eps=eps), over="own", flat=True) if normed else None,
            window=given.window() if given.flag("use_sliding_window") else None,
            **_gate(given),
        ),
        mlp=MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu")),
        before_attention=Norm(name="input_layernorm", eps=eps, groups=groups),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps, groups=groups),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=hidden,
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", eps=eps, groups=groups),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
    )


shape = shape_of(read)


class K2Horizon(CausalLM):
    """The architecture."""

    describe = staticmethod(read)


def _refuse_experts(given: Fields) -> None:
    """Refuse layers with experts: those at every `decoder_sparse_step`-th place that are not named as dense."""
    dense, every = given.config.get("mlp_only_layers") or (), given.integer("decoder_sparse_step", 1, most=MOST_LAYERS)
    if any(index not in dense and (index + 1) % every == 0 for index in range(given.layers())):
        given.refuse("num_experts", "mova_num_experts")


def _rope(given: Fields) -> RopeConfig:
    """Return the rotary embedding: of a whole head, or of the first `rope_head_dim / 2` pairs of its halves."""
    if not any(given.config.get(key) for key in ("rope_parameters", "rope_scaling", "rope_theta")):
        raise CheckpointError("CORE-M126", "'rope_parameters' is missing.")
    rope, size = given.rope(), given.head_dim()
    rotated = given.integer("rope_head_dim", size, most=size)
    if rotated == size:
        return rope
    if rope.rule != "default" or rotated % 2:
        text = f"'rope_head_dim' is {rotated} of {size}: supported is an even number beside rotary scaling 'default'"
        raise CheckpointError("CORE-M126", f"{text}, not '{rope.rule}'.")
    # Core's rule for some pairs of a head counts their frequencies over all of the head, these models over the part.
    scaling = {"rope_type": "proportional", "partial_rotary_factor": rotated / size}
    return rope.model_copy(update={"theta": rope.theta ** (size / rotated), "scaling": scaling})


def _gate(given: Fields) -> dict[str, Any]:
    """Return the gate behind attention, as arguments of `Attention`."""
    given.expect("attention_gate_func", "silu", "softplus")
    name = given.config.get("attention_gate_func")
    if name is None:
        return {}
    return {"gate": "gate_proj", "gate_activation": "silu" if name == "silu" else _softplus}


def _softplus(build: LayerBuilder, path: str) -> Activation:
    from torch.nn import functional

    def activation(x: Tensor) -> Tensor:
        """Return `log2(1 + 2**x)`."""
        return functional.softplus(x, beta=math.log(2))

    return activation
