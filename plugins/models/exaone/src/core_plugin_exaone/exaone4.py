"""EXAONE 4: norms behind attention and MLP alone; where there are windows, layers without one rotate nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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
    Norm,
    shape_of,
)

from core.api import CheckpointError

_USUAL = {"num_key_value_heads": 32, "sliding_window": 4096, "sliding_window_pattern": 4}
_PATTERN = "sliding_window_pattern"


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **config}, "Exaone4ForCausalLM")
    rope, size, eps = given.rope(), given.head_dim(), given.number("rms_norm_eps", 1e-5, least=0.0)
    window = given.window()
    full = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            rope=rope if window is None else None,
            q_norm=HeadNorm(norm=Norm(name="q_norm", eps=eps)),
            k_norm=HeadNorm(norm=Norm(name="k_norm", eps=eps)),
        ),
        mlp=MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu")),
        after_attention=Norm(name="post_attention_layernorm", eps=eps),
        after_mlp=Norm(name="post_feedforward_layernorm", eps=eps),
    )
    sliding = replace(full, attention=replace(full.attention, rope=rope, window=window))
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=tuple(sliding if kind == SLIDING else full for kind in _kinds(given, window)),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        pooling=given.pooling(),
        causal=given.causal,
    )


def _kinds(given: Fields, window: int | None) -> tuple[str, ...]:
    """Return the kind of each layer: listed; or by a pattern, in letters (`LLLG`) or every so many without a window."""
    pattern = given.config.get(_PATTERN)
    if window is None or given.config.get("layer_types") is not None:
        return given.kinds(lambda _: FULL)
    if isinstance(pattern, str):
        if not pattern or set(pattern) - {"L", "G"}:
            raise CheckpointError("CORE-M126", f"'{_PATTERN}' is {pattern!r:.60}, not a pattern of L and G.")
        letters: str = pattern
        return given.kinds(lambda index: SLIDING if letters[index % len(letters)] == "L" else FULL)
    every = given.integer(_PATTERN)
    return given.kinds(lambda index: SLIDING if (index + 1) % every else FULL)


shape = shape_of(read)


class Exaone4(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
