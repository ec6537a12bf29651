"""Dory: what its configurations say. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from core_plugin_decoder import FULL, MLP, SLIDING, Attention, Decoder, Fields, Layer, shape_of

from core.api import MOST_LAYERS, CheckpointError, config_names

_MLP = "mlp"
_USUAL = {"head_dim": 256, "sliding_window": 1024, "max_position_embeddings": 8192}
"""Values of keys that a configuration lacks, as its makers have them."""

_OLDER = ("dory_format_version", "hybrid_layer_pattern", "swa_window_size", "attention_head_dim", "init_method_std")
"""Keys of the older form of configurations."""


class Loops(NamedTuple):
    """Which layers run several times.

    Attributes:
        first, last: The first of them, and that behind the last.
        times: How often they run.
    """

    first: int
    last: int
    times: int


class Scales(NamedTuple):
    """Factors of stored parameters, which are kept near their deviation in training.

    Attributes:
        usual: Of the square roots of factors, and of the logits.
        rate: Of the rates by which the residual moves.
        gate: Of the square of that of the gates.
    """

    usual: float
    rate: float
    gate: float


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the sizes of the decoder; the model class says what it computes."""
    given = fields(config)
    for also in (loops_of, scales_of):
        also(config)  # What is wrong there is refused here, too: before anything is loaded.
    layers = tuple(_layer(given, kind) for kind in _kinds(given))
    attentions = [layer.attention for layer in layers if isinstance(layer.attention, Attention)]
    windows = [attention.window for attention in attentions]
    if not windows:
        raise CheckpointError("CORE-M126", "'layer_types' names no layer with attention.")
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=None,
        # Windows need no scaling: the layers that see everything say how far positions reach.
        max_positions=given.rope(kind=SLIDING if all(windows) else FULL).context,
        dtype=given.dtype(),
        root="backbone",
        embed="embeddings",
    )


shape = shape_of(read)


def fields(config: Mapping[str, Any]) -> Fields:
    """Return the configuration; what it asks for and nobody computes is refused."""
    given = Fields({**_USUAL, **config}, "DoryForCausalLM")
    given.refuse(*_OLDER, "attention_bias", "mlp_bias", "tie_word_embeddings")
    given.expect("hidden_act", "silu")
    given.expect("recurrent_kv_cache_mode", "per_loop")
    return given


def loops_of(config: Mapping[str, Any]) -> Loops:
    """Return which layers run several times: all but the first and the last ones."""
    given, count = fields(config), fields(config).layers()
    first, behind = _count(given, "n_input_layers", 0), _count(given, "n_output_layers", 0)
    inside = _count(given, "n_recurrent_layers", count - first - behind)
    if inside < 0 or first + inside + behind != count:
        names = "'n_input_layers', 'n_recurrent_layers' and 'n_output_layers'"
        raise CheckpointError("CORE-M126", f"{names} are {first}, {inside} and {behind}, which are not {count} layers.")
    return Loops(first, first + inside, given.integer("n_recurrent_loops", 1))


def scales_of(config: Mapping[str, Any]) -> Scales:
    """Return the factors of stored parameters."""
    given = fields(config)
    deviation = given.number("initializer_range", 0.02, least=1e-6)
    gate = given.number("attention_output_gate_logit_scale_init", given.integer("hidden_size") ** 0.5, least=0.0)
    return Scales(1 / deviation, given.number("ngpt_alpha_init", 0.05) / deviation, gate / deviation**2)


def _kinds(given: Fields) -> tuple[str, ...]:
    """Return the kind of each layer: attention of one of two kinds, or an MLP."""
    kinds, count = config_names(given.config, "layer_types"), given.layers()
    if kinds is None:
        return tuple(_MLP if index % 2 else FULL if index % 8 == 6 else SLIDING for index in range(count))
    if len(kinds) != count or not set(kinds) <= {SLIDING, FULL, _MLP}:
        text = f"'layer_types' must name {count} layers as {SLIDING}, {FULL} or {_MLP}."
        raise CheckpointError("CORE-M126", text)
    return kinds


def _layer(given: Fields, kind: str) -> Layer:
    """Return a layer, which is attention or an MLP."""
    if kind == _MLP:
        return Layer(attention=None, mlp=MLP(name="mixer", size=given.integer("intermediate_size")))
    size = given.integer("head_dim")
    attention = Attention(
        name="mixer",
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=size,
        scale=size**-0.5,
        rope=given.rope(kind=kind),
        window=given.integer("sliding_window") if kind == SLIDING else None,
        gate="g_proj",
    )
    return Layer(attention=attention, mlp=None)


def _count(given: Fields, key: str, usual: int) -> int:
    """Return a number of layers, perhaps none."""
    value = given.config.get(key)
    return usual if value is None else given.integer(key, most=MOST_LAYERS) if value != 0 else 0
