"""PLaMo 3: norms on both sides of attention and MLP, and two kinds of layers, each with a rotary base of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import (
    FULL,
    MLP,
    SLIDING,
    Attention,
    CausalLM,
    Decoder,
    Fields,
    HeadNorm,
    Layer,
    shape_of,
)

from core.api import CheckpointError, RopeConfig
from core_plugin_plamo.parts import norm, norms, tied

_PERIOD = 8
"""One layer in so many sees the whole context, the last of them, where the configuration does not say."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({"head_dim": 128, **config}, "Plamo3ForCausalLM")
    given.refuse("scale_embedding", "image_token_id")
    given.expect("linear_type", "normal")
    every = given.integer("sliding_window_pattern", _PERIOD)
    kinds = given.kinds(lambda index: SLIDING if (index + 1) % every else FULL)
    ropes = {kind: _rope(given, kind) for kind in set(kinds)}
    layers = {kind: _layer(given, ropes[kind], kind) for kind in set(kinds)}
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=tuple(layers[kind] for kind in kinds),
        final_norm=norm(given, "norm"),
        max_positions=(ropes.get(FULL) or ropes[SLIDING]).context,
        dtype=given.dtype(),
        layer="layers.layers.{}",
        tied=tied(given),
    )


def _layer(given: Fields, rope: RopeConfig, kind: str) -> Layer:
    size = given.head_dim()
    return Layer(
        attention=Attention(
            name="mixer",
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            fused="qkv_proj",
            rope=rope,
            q_norm=HeadNorm(norm=norm(given, "q_norm")),
            k_norm=HeadNorm(norm=norm(given, "k_norm")),
            window=_window(given) if kind == SLIDING else None,
        ),
        mlp=MLP(size=given.integer("intermediate_size"), fused="gate_up_proj"),
        **norms(given),
    )


def _window(given: Fields) -> int:
    """Return the window in tokens. Older configurations have a list with one for each layer, or none."""
    stated = given.config.get("sliding_window", given.config.get("window_size"))
    windows = {one for one in stated if one is not None} if isinstance(stated, list) else {stated}
    if len(windows) != 1:
        raise CheckpointError("CORE-M126", f"'sliding_window' has several windows: {stated!r:.60}.")
    return Fields({"window_size": windows.pop()}).integer("window_size")


def _rope(given: Fields, kind: str) -> RopeConfig:
    """Return the rotation of one kind of layers: layers with a window have a base of their own, and no scaling."""
    if "rope_parameters" in given.config:
        return given.rope(kind=kind)
    here: dict[str, Any] = {"max_position_embeddings": given.positions()}
    if kind == SLIDING:
        return Fields(here | {"rope_theta": given.number("rope_local_theta", 10000.0, least=1.0)}).rope(
            given.head_dim()
        )
    key = "rope_theta" if given.config.get("rope_theta") is not None else "rope_global_theta"
    # Configurations always have one of both: the usual base has changed.
    here |= {
        "rope_theta": given.number(key, 0.0, least=1.0, most=1e12),
        "rope_scaling": given.config.get("rope_scaling"),
    }
    if (factor := given.number("rope_scaling_factor", 1.0, least=1.0)) != 1.0:
        here["rope_scaling"] = {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": given.integer("initial_context_length"),
            "truncate": False,
        }
    return Fields(here).rope(given.head_dim())


shape = shape_of(read)


class Plamo3(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
