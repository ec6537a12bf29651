"""Shape of a model of transformers, read from its configuration. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from core.api import ModelShape
from core.api.errors import CheckpointError
from core_plugin_transformers_bridge.eligible import eligible
from core_plugin_transformers_bridge.sources import Source, source_of

_LAYERS = frozenset({"full_attention", "sliding_attention", "attention"})
_ROTARY = frozenset({"default", "linear", "yarn", "llama3", "proportional"})
"""Rotary scalings under which keys do not depend on how long a request becomes."""


def shape(config: dict[str, Any]) -> ModelShape:
    """Return the facts that the engine needs before any weight is read.

    Raises:
        CheckpointError: CORE-M210, the architecture cannot be bridged; CORE-M211, its configuration cannot.
    """
    architecture = str(next(iter(config.get("architectures") or ()), ""))
    verdict, source = eligible(architecture), source_of(architecture)
    if source is None or not verdict.ok:
        raise CheckpointError("CORE-M210", f"{architecture} cannot be bridged: {'; '.join(verdict.reasons)}.")
    values = _Values(config, source)
    wrong = list(_refusals(values))
    if wrong:
        raise CheckpointError("CORE-M211", f"this {architecture} cannot be bridged: {'; '.join(wrong)}.")
    heads, hidden = values.integer("num_attention_heads"), values.integer("hidden_size")
    return ModelShape(
        vocab_size=values.integer("vocab_size"),
        max_positions=values.integer("max_position_embeddings"),
        num_layers=values.integer("num_hidden_layers"),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=values.get("num_key_value_heads") or heads,
        head_dim=_head_dim(values, hidden // heads),
        features=frozenset(_features(values)),
        dtype=str(values.get("dtype") or values.get("torch_dtype") or "bfloat16").removeprefix("torch."),
        layers_key=values.key("num_hidden_layers"),
    )


class _Values:
    """A configuration with the defaults and the other names of keys that its class has."""

    def __init__(self, config: Mapping[str, Any], source: Source) -> None:
        self._defaults = source.defaults()
        self._config, self.text = config, source.text
        self._names: Mapping[str, str] = self._defaults.get("attribute_map") or {}

    def key(self, name: str) -> str:
        """Return what the file calls a key."""
        return name if name in self._config else self._names.get(name, name)

    def get(self, name: str) -> Any:
        """Return a value; None for one that nobody states."""
        key = self.key(name)
        return self._config[key] if key in self._config else self._defaults.get(key)

    def integer(self, name: str) -> int:
        """Return a size. Raises `CheckpointError` CORE-M211 for what is none."""
        value = self.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CheckpointError("CORE-M211", f"'{self.key(name)}' is {value!r}, not a positive number.")
        return value


def _head_dim(values: _Values, usual: int) -> int:
    """Return the size of a head of queries and keys; a latent one is two parts."""
    parts = (values.get("qk_nope_head_dim"), values.get("qk_rope_head_dim"))
    if all(isinstance(part, int) for part in parts):
        return sum(parts)
    found = values.get("head_dim")
    return found if isinstance(found, int) and found > 0 else usual


def _features(values: _Values) -> Iterator[str]:
    """Yield the attention features that layers may need."""
    if values.get("layer_types"):
        slides = "sliding_attention" in values.get("layer_types")
    else:
        slides = bool(values.get("sliding_window")) and values.get("use_sliding_window") is not False
    if slides:
        yield "sliding_window"
    if values.get("attn_logit_softcapping") is not None:
        yield "softcap"
    if "s_aux" in values.text:
        yield "sinks"


def _refusals(values: _Values) -> Iterator[str]:
    """Yield what speaks against a configuration."""
    for name in ("is_encoder_decoder", "add_cross_attention", "alibi"):
        if values.get(name):
            yield f"'{name}' is set"
    others = sorted(set(map(str, values.get("layer_types") or ())) - _LAYERS)
    if others:
        yield f"it has layers of the type {', '.join(others)}"
    if "chunk_attention_size" in values.text or values.get("attention_chunk_size"):
        yield "its attention is chunked"
    for scaling in _scalings(values.get("rope_parameters") or values.get("rope_scaling")):
        if scaling not in _ROTARY:
            yield f"rotary scaling '{scaling}' depends on how long a request becomes"


def _scalings(given: Any) -> Iterator[str]:
    """Yield the rotary scalings of a configuration, which may have one for each type of layer."""
    if isinstance(given, Mapping):
        kind = given.get("rope_type", given.get("type"))
        if isinstance(kind, str):
            yield kind
        for value in given.values():
            yield from _scalings(value)
