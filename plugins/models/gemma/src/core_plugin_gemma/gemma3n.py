"""Gemma 3n, its text decoder, as data: several streams of hidden states, and MLPs that keep few of their activations.

Torch-free, but for the model class. Shapes: T tokens of a step; D hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core_plugin_decoder import FULL, MLP, SLIDING, Attention, Decoder, Fields, HeadNorm, Layer, Norm, shape_of
from core_plugin_decoder.model import CausalLM

from core.api import CheckpointError, RopeConfig, config_int, config_object, rope_config
from core_plugin_gemma.per_layer import LayerInputs, activation, norm_eps

if TYPE_CHECKING:
    from core_plugin_decoder.description import MakeActivation
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.layers import Activation

DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 262_400,
    "hidden_size": 2048,
    "intermediate_size": 16_384,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 32_768,
    "sliding_window": 512,
    "final_logit_softcapping": 30.0,
    "vocab_size_per_layer_input": 262_144,
    "hidden_size_per_layer_input": 256,
    "altup_num_inputs": 4,
    "num_kv_shared_layers": 15,
    "laurel_rank": 64,
}
"""Values of keys that a configuration lacks, as transformers has them."""

_THETAS = {FULL: 1e6, SLIDING: 1e4}
_SPARSE, _SHARE = 10, 0.95
"""Without a pattern the first so many layers of more have so great a share of their activations cut off."""

_KEPT = ("k_proj", "v_proj", "k_norm", "v_norm")
"""Modules that some checkpoints have in layers that read the keys and values of others."""


def fields(config: Mapping[str, Any]) -> Fields:
    """Return the configuration with what it lacks."""
    given = Fields({**DEFAULTS, **config}, "Gemma3nForCausalLM")
    given.refuse("use_bidirectional_attention")
    given.expect("is_causal", True)
    return given


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration, without what its layers have beside attention and MLP."""
    given = fields(config)
    kinds = given.kinds(lambda layer: SLIDING if (layer + 1) % 5 else FULL)
    shared = given.integer("num_kv_shared_layers", most=len(kinds) - 1) if given.config["num_kv_shared_layers"] else 0
    own = kinds[: len(kinds) - shared]
    if set(own) != set(kinds):
        raise CheckpointError("CORE-M126", f"'num_kv_shared_layers' is {shared}, which leaves a kind of layer without.")
    sizes = _each(given, "intermediate_size", given.config["intermediate_size"])
    layers = tuple(
        _layer(given, kind, size, share, None if index < len(own) else len(own) - 1 - own[::-1].index(kind))
        for index, (kind, size, share) in enumerate(zip(kinds, sizes, _sparsities(given), strict=True))
    )
    skips = [f"*layers.{index}.self_attn.{name}.*" for index in range(len(own), len(kinds)) for name in _KEPT]
    if not given.flag("altup_correct_scale", default=True):
        skips.append("*.altup.correct_output_scale")
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
    )


shape = shape_of(read)


class Gemma3n(CausalLM):
    """The architecture."""

    describe = staticmethod(read)

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        from core_plugin_gemma.altup import Streams, StreamsLayer

        super().__init__(config, build)
        given, decoder = fields(config), read(config)
        size = given.integer("hidden_size_per_layer_input")
        self.inputs = LayerInputs(given, build, len(decoder.layers), size)
        self.streams = Streams(given, build)
        self.layers = [
            StreamsLayer(given, build, decoder.layer_path(index), size, *sublayers)
            for index, (_, sublayers) in enumerate(self.passes[0])
        ]

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        embedded = self.embed(step)
        inputs, streams = self.inputs(embedded, step), self.streams.made(embedded)
        for index, layer in enumerate(self.layers):
            streams = layer(streams, inputs[:, index], step)
        hidden = self.streams.joined(streams)
        return hidden if self.norm is None else self.norm(hidden)


def _layer(given: Fields, kind: str, size: int, sparsity: float, shares: int | None) -> Layer:
    """Return a layer; `shares` is that whose keys and values it reads."""
    bias, act = given.flag("attention_bias"), activation(given)
    attention = Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=given.head_dim(),
        scale=1.0,
        bias=bias,
        output_bias=bias,
        rope=_rope(given, kind),
        q_norm=HeadNorm(norm=_norm(given, "q_norm")),
        k_norm=HeadNorm(norm=_norm(given, "k_norm")),
        v_norm=HeadNorm(norm=Norm(name="v_norm", eps=norm_eps(given), weight=False)),
        window=given.window() if kind == SLIDING else None,
        shares=shares,
    )
    # How many activations are cut off follows from all of a row.
    cut = _sparse(act, sparsity) if sparsity else act
    return Layer(
        attention=attention,
        mlp=MLP(size=size, activation=cut, divided=not sparsity),
        before_attention=_norm(given, "input_layernorm"),
        after_attention=_norm(given, "post_attention_layernorm"),
        before_mlp=_norm(given, "pre_feedforward_layernorm"),
        after_mlp=_norm(given, "post_feedforward_layernorm"),
    )


def _sparse(name: str, sparsity: float) -> MakeActivation:
    def made(build: LayerBuilder, path: str) -> Activation:
        from core_plugin_gemma.altup import SparseGate

        return SparseGate(build.activation(name), sparsity)

    return made


def _sparsities(given: Fields) -> list[float]:
    """Return the share of the activations that each layer cuts off; 0: none."""
    pattern, count = given.config.get("activation_sparsity_pattern"), given.layers()
    if pattern is None:
        sparse = _SPARSE if count > _SPARSE else 0
        return [_SHARE] * sparse + [0.0] * (count - sparse)
    shares = pattern if isinstance(pattern, list) else [pattern] * count
    if len(shares) != count or not all(isinstance(one, int | float) and 0 <= one < 1 for one in shares):
        text = f"'activation_sparsity_pattern' must give a share from 0 to below 1 for each of {count} layers."
        raise CheckpointError("CORE-M126", text)
    return [float(one) for one in shares]


def _each(given: Fields, key: str, value: object) -> list[int]:
    """Return a size for each layer: one for all, or a list."""
    count = given.layers()
    values = value if isinstance(value, list) else [value] * count
    if len(values) != count:
        raise CheckpointError("CORE-M126", f"'{key}' has {len(values)} sizes for {count} layers.")
    return [config_int({key: one}, key) for one in values]


def _rope(given: Fields, kind: str) -> RopeConfig:
    """Return the rotary embedding of one kind of layers, in the form of transformers 4 or 5."""
    config, stored = given.config, config_object(given.config, "rope_parameters")
    if stored.keys() & {SLIDING, FULL}:
        parameters = dict(config_object(stored, kind))
    elif kind == SLIDING:
        parameters = {"rope_theta": config.get("rope_local_base_freq")}
    else:
        parameters = {"rope_theta": config.get("rope_theta"), **stored, **config_object(config, "rope_scaling")}
    here = {"rope_parameters": parameters, "max_position_embeddings": given.positions()}
    return rope_config(here, given.head_dim(), theta=_THETAS[kind])


def _norm(given: Fields, name: str) -> Norm:
    return Norm(name=name, eps=norm_eps(given))
