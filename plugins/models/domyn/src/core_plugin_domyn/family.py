"""Domyn Edge: norms before and behind, and layers that differ in heads, windows and positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, HeadNorm, Layer, Norm, shape_of

from core.api import MOST_POSITIONS, CheckpointError, config_int, config_object

_ROTATED, _UNROTATED = "rope", "nope"

_POSITIONS = [*[_UNROTATED] * 2, *[*[_ROTATED] * 3, _UNROTATED] * 8, *[_UNROTATED] * 2]
_WINDOWS = [[1024 if kind == _ROTATED else -1, 0] for kind in _POSITIONS]
_HEADS = [64 if kind == _ROTATED else 256 for kind in _POSITIONS]
"""Layers of the published model, where a configuration has no lists."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "DomynEdgeForCausalLM")
    given.refuse("attention_bias", "mlp_bias")
    eps, positions = given.number("rms_norm_eps", 1e-6, least=0.0), given.positions(8192)
    kinds = _each(given, "position_layers", _POSITIONS, "'rope' or 'nope'", lambda one: one in (_ROTATED, _UNROTATED))
    windows = _each(given, "window_sizes", _WINDOWS, "[tokens, 0], with -1 for all", _is_window)
    layers = tuple(
        _layer(given, eps, size, None if window[0] == -1 else window[0] + 1, rotated=kind == _ROTATED)
        for kind, window, size in zip(kinds, windows, _head_sizes(given), strict=True)
    )
    ropes = [layer.attention.rope for layer in layers if isinstance(layer.attention, Attention)]
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=next((rope.context for rope in ropes if rope is not None), positions),
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings", default=True),
    )


shape = shape_of(read)


class DomynEdge(CausalLM):
    """The architecture."""

    describe = staticmethod(read)


def _layer(given: Fields, eps: float, size: int, window: int | None, *, rotated: bool) -> Layer:
    """Return a layer with heads of a size."""
    return Layer(
        attention=Attention(
            name="attention",
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            rope=given.rope(size) if rotated else None,
            q_norm=HeadNorm(norm=Norm(name="q_norm", eps=eps, weight=False)),
            k_norm=HeadNorm(norm=Norm(name="k_norm", eps=eps)),
            window=window,
        ),
        mlp=MLP(
            name="feedforward",
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "silu"),
        ),
        before_attention=Norm(name="pre_attention_norm", eps=eps),
        after_attention=Norm(name="post_attention_norm", eps=eps),
        before_mlp=Norm(name="pre_feedforward_norm", eps=eps),
        after_mlp=Norm(name="post_feedforward_norm", eps=eps),
    )


def _head_sizes(given: Fields) -> list[int]:
    """Return the size of a head of each layer: from a list, or a size for all; and those of single layers."""
    count, whole = given.layers(), given.config.get("head_dim")
    single = {str(index): values for index, values in config_object(given.config, "per_layer_config").items()}
    for layer, values in single.items():
        if layer not in map(str, range(count)) or not isinstance(values, Mapping) or set(values) - {"head_dim"}:
            text = f"'per_layer_config' has '{layer:.20}': {values!r:.60}, and may give some of {count} layers"
            raise CheckpointError("CORE-M126", f"{text} a 'head_dim', and nothing else.")
    if given.config.get("head_sizes") is None and (whole is not None or single):
        sizes, listed = [whole] * count, False
    else:
        sizes, listed = _each(given, "head_sizes", _HEADS, "a size", lambda one: type(one) is int), True
    found = []
    for index, size in enumerate(sizes):
        own = single.get(str(index), {}).get("head_dim", size)
        if listed and own != size:
            text = f"'head_sizes' has {size} for layer {index}, and 'per_layer_config' {own!r:.20}."
            raise CheckpointError("CORE-M126", text)
        found.append(config_int({"head_dim": own}, "head_dim"))
    return found


def _is_window(value: object) -> bool:
    """Return whether a value is `[tokens before, tokens behind]` of causal attention."""
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(type(one) is int for one in value):
        return False
    before, behind = value
    return bool(behind == 0 and (before == -1 or 1 <= before < MOST_POSITIONS))


def _each(given: Fields, key: str, usual: list[Any], what: str, fits: Callable[[Any], bool]) -> list[Any]:
    """Return a value for each layer."""
    values, count = given.config.get(key), given.layers()
    values = usual if values is None else values
    if not isinstance(values, list | tuple) or len(values) != count or not all(map(fits, values)):
        raise CheckpointError(
            "CORE-M126", f"'{key}' is {values!r:.60}, and must give {what} for each of {count} layers."
        )
    return list(values)
