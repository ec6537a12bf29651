"""GPT-Neo: layers see everything or a window, by turns; scores have no factor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from core_plugin_decoder import Attention, CausalLM, Decoder, Fields, Layer, shape_of

from core.api import CheckpointError
from core_plugin_gpt.usual import KEYS, decoder_of, layer_norm, wide

_KEYS = {
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_act": KEYS["hidden_act"],
    "layer_norm_eps": KEYS["layer_norm_eps"],
}
_USUAL = [[["global", "local"], 12]]


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "GPTNeoForCausalLM", _KEYS)
    window = given.integer("window_size", 256)
    layers = [_layer(given, None if kind == "global" else window) for kind in _kinds(given)]
    return decoder_of(given, layers)


def _kinds(given: Fields) -> tuple[str, ...]:
    """Return `global` or `local` for each layer."""
    stated, count = given.config.get("attention_types") or _USUAL, given.layers()
    try:
        kinds = tuple(islice(_expanded(stated), count + 1))
    except (TypeError, ValueError):
        kinds = ()
    if len(kinds) != count or not set(kinds) <= {"global", "local"}:
        text = f"'attention_types' must name {count} layers as global or local, not {stated!r:.60}."
        raise CheckpointError("CORE-M126", text)
    return kinds


def _expanded(groups: Any) -> Iterator[str]:
    for kinds, times in groups:
        for _ in range(times):
            yield from kinds


def _layer(given: Fields, window: int | None) -> Layer:
    return Layer(
        attention=Attention(
            name="attn.attention",
            heads=given.heads(),
            kv_heads=given.heads(),
            head_dim=given.head_dim(),
            scale=1.0,
            output="out_proj",
            output_bias=True,
            window=window,
        ),
        mlp=wide(given, ("c_fc", "c_proj")),
        before_attention=layer_norm(given, "ln_1"),
        before_mlp=layer_norm(given, "ln_2"),
    )


shape = shape_of(read)


class GPTNeo(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
