"""Gemma 4, its text decoder: heads that differ by the kind of layer, and last layers that keep no keys and values.

Torch-free, but for the model class. Shapes: T tokens of a step; D hidden size; N layers; P numbers of what a token
gives a layer besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core_plugin_decoder import FULL, MLP, SLIDING, Attention, Decoder, Fields, HeadNorm, Layer, Norm, shape_of
from core_plugin_decoder.model import CausalLM

from core.api import CheckpointError, RopeConfig, config_object, rope_config
from core_plugin_gemma.gemma4_experts import RULES, MLPWithExperts
from core_plugin_gemma.per_layer import LayerInput, LayerInputs, activation, norm_eps

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs

DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 262_144,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "global_head_dim": 512,
    "max_position_embeddings": 131_072,
    "sliding_window": 512,
    "vocab_size_per_layer_input": 262_144,
    "hidden_size_per_layer_input": 256,
}
"""Values of keys that a configuration lacks, as transformers has them."""

_ROPES: Mapping[str, Mapping[str, Any]] = {
    SLIDING: {"rope_theta": 1e4},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}


def fields(config: Mapping[str, Any]) -> Fields:
    """Return the configuration with what it lacks."""
    given = Fields({**DEFAULTS, **config}, "Gemma4ForCausalLM")
    # Of images alone, which are not read: text is causal.
    if given.config.get("use_bidirectional_attention") != "vision":
        given.refuse("use_bidirectional_attention")
    return given


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration, without what its layers have beside attention and MLP."""
    given = fields(config)
    kinds = (*given.kinds(lambda layer: FULL if layer % 6 == 5 else SLIDING)[:-1], FULL)
    shared = _count(given, "num_kv_shared_layers", most=len(kinds) - 1)
    own = kinds[: len(kinds) - shared]
    if set(own) != set(kinds):
        raise CheckpointError("CORE-M126", f"'num_kv_shared_layers' is {shared}, which leaves a kind of layer without.")
    layers = tuple(
        _layer(given, index, kind, None if index < len(own) else len(own) - 1 - own[::-1].index(kind))
        for index, kind in enumerate(kinds)
    )
    skips = (f"*layers.{index}.self_attn.{name}.*" for index in range(len(own), len(kinds)) for name in _KEPT)
    hidden = given.integer("hidden_size")
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=hidden,
        layers=layers,
        final_norm=_norm(given, "norm"),
        max_positions=given.positions(),
        dtype=given.dtype(),
        embed_scale=hidden**0.5,
        tied=given.flag("tie_word_embeddings", default=True),
        softcap=given.maybe("final_logit_softcapping"),
        skips=tuple(skips),
        experts=RULES if given.flag("enable_moe_block") else (),
    )


_KEPT = ("k_proj", "v_proj", "k_norm", "v_norm")
"""Modules that some checkpoints have in layers that read the keys and values of others."""

shape = shape_of(read)


class Gemma4(CausalLM):
    """The architecture: each layer also adds an input of its own, which depends on the token."""

    describe = staticmethod(read)

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        super().__init__(config, build)
        given, decoder = fields(config), read(config)
        size, count = _count(given, "hidden_size_per_layer_input"), len(decoder.layers)
        paths = [decoder.layer_path(index) for index in range(count)]
        self.scalars = [build.parameter(f"{path}.layer_scalar", (1,)) for path in paths]
        self.inputs = LayerInputs(given, build, count, size) if size else None
        self.added = [LayerInput(given, build, path, size) for path in paths] if size else []
        if given.flag("enable_moe_block"):
            for path, (_, bodies) in zip(paths, self.passes[0], strict=True):
                mlp = bodies[1]
                bodies[1] = MLPWithExperts(given, build, path, mlp.before, mlp.body, mlp.after)

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        hidden = self.embed(step)
        inputs = None if self.inputs is None else self.inputs(hidden, step)
        for index, scalar in enumerate(self.scalars):
            _, (attention, mlp) = self.passes[0][index]
            pending, residual = mlp(*attention(None, hidden, step), step)
            hidden = residual if pending is None else residual + pending
            if inputs is not None:
                hidden = hidden + self.added[index](hidden, inputs[:, index])
            hidden = hidden * scalar()
        return hidden if self.norm is None else self.norm(hidden)


def _layer(given: Fields, index: int, kind: str, shares: int | None) -> Layer:
    """Return a layer; `shares` is that whose keys and values it reads."""
    head_dim, kv_heads, bias = *_heads(given, index, kind), given.flag("attention_bias")
    attention = Attention(
        heads=given.heads(),
        kv_heads=kv_heads,
        head_dim=head_dim,
        scale=1.0,
        bias=bias,
        output_bias=bias,
        rope=_rope(given, kind, head_dim),
        q_norm=HeadNorm(norm=_norm(given, "q_norm")),
        k_norm=HeadNorm(norm=_norm(given, "k_norm")),
        v_norm=HeadNorm(norm=Norm(name="v_norm", eps=norm_eps(given), weight=False)),
        window=given.window() if kind == SLIDING else None,
        keys_are_values=given.flag("attention_k_eq_v") and kind == FULL,
        shares=shares,
    )
    wide = 2 if shares is not None and given.flag("use_double_wide_mlp") else 1
    return Layer(
        attention=attention,
        mlp=MLP(size=wide * given.integer("intermediate_size"), activation=activation(given)),
        before_attention=_norm(given, "input_layernorm"),
        after_attention=_norm(given, "post_attention_layernorm"),
        before_mlp=_norm(given, "pre_feedforward_layernorm"),
        after_mlp=_norm(given, "post_feedforward_layernorm"),
    )


def _heads(given: Fields, index: int, kind: str) -> tuple[int, int]:
    """Return size and number of the heads of keys: newer configurations name the layers that differ."""
    layers = config_object(given.config, "per_layer_config")
    if layers:
        here = Fields({**given.config, **config_object(layers, str(index))})
        return here.head_dim(), here.kv_heads()
    if kind == SLIDING:
        return given.head_dim(), given.kv_heads()
    count = given.config.get("num_global_key_value_heads") if given.flag("attention_k_eq_v") else None
    changes = {"head_dim": given.config["global_head_dim"], **({} if count is None else {"num_key_value_heads": count})}
    here = Fields({**given.config, **changes})
    return here.head_dim(), here.kv_heads()


def _rope(given: Fields, kind: str, head_dim: int) -> RopeConfig:
    stored = config_object(given.config, "rope_parameters") or _ROPES
    parameters = config_object(stored, kind) or _ROPES[kind]
    return rope_config({"rope_parameters": parameters, "max_position_embeddings": given.positions()}, head_dim)


def _norm(given: Fields, name: str) -> Norm:
    return Norm(name=name, eps=norm_eps(given))


def _count(given: Fields, name: str, **bounds: int) -> int:
    """Return a whole number, which may be 0, as it is where the key is missing or null."""
    return given.integer(name, **bounds) if given.config.get(name) else 0
