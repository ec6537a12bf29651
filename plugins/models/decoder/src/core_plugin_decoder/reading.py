"""Reading configurations: the keys that most decoders have, with errors that name them. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from core.api import (
    MOST_LAYERS,
    MOST_POSITIONS,
    CheckpointError,
    PoolingShape,
    RopeConfig,
    config_architecture,
    config_dtype,
    config_heads,
    config_int,
    config_labels,
    config_names,
    config_number,
    rope_config,
)
from core_plugin_decoder.description import LatentAttention, Score

SLIDING, FULL = "sliding_attention", "full_attention"
"""Kinds of layers, by transformers' names."""

_BARE, _SEQUENCE, _REWARD = "Model", "ForSequenceClassification", "ForRewardModel"
_STEPS = "ForProcessRewardModel"
_TWO_WAYS, _EACH = "from_2_way_softmax", "no_post_processing"
"""How tokens of a model that generates become classes."""

_HEADED = "LMHeadModel"
"""How the oldest architectures that generate end."""


_LATENT_SIZES = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def _stretched(rope: RopeConfig) -> float:
    """Return the factor of the scores in a stretched context: of `mscale_all_dim`, for queries and keys."""
    share, factor = rope.number("mscale_all_dim", 0.0), rope.factor
    return (0.1 * share * math.log(factor) + 1.0) ** 2 if factor > 1 else 1.0


class Fields:
    """A configuration with Hugging Face's keys, in the form of transformers 4 or 5.

    Every number is held against bounds. Methods raise `CheckpointError` CORE-M126 for a value that is missing or not
    supported, and CORE-M125 for a rotary scaling that nobody computes.

    Args:
        config: The configuration.
        architecture: Where the configuration names none.
        keys: Names of the usual keys -> those that this family has instead (`{"hidden_size": "n_embd"}`). A
            configuration without such a key may have the usual one.
    """

    def __init__(
        self, config: Mapping[str, Any], architecture: str = "", keys: Mapping[str, str] | None = None
    ) -> None:
        self.config, self._keys = config, keys or {}
        self.architecture = config_architecture(config, architecture)

    def key(self, name: str) -> str:
        """Return what this configuration calls a key."""
        own = self._keys.get(name, name)
        return name if own not in self.config and name in self.config else own

    def integer(self, name: str, default: int | None = None, **bounds: int) -> int:
        """Return a positive integer; `default` where the key is missing or null."""
        return config_int(self.config, self.key(name), default, **bounds)

    def number(self, name: str, default: float, *, least: float = -1e6, most: float = 1e6) -> float:
        """Return a number; `default` where the key is missing or null."""
        return config_number(self.config, self.key(name), default, least=least, most=most)

    def maybe(self, name: str, default: float | None = None) -> float | None:
        """Return a positive number; None where the key is null, `default` where it is missing."""
        if self.config.get(self.key(name), default) is None:
            return None
        return self.number(name, default or 0.0, least=1e-6)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return whether something is so; `default` where the key is missing or null."""
        value = self.config.get(self.key(name))
        return default if value is None else bool(value)

    def text(self, name: str, default: str) -> str:
        """Return a name; `default` where the key is missing or null."""
        return str(self.config.get(self.key(name)) or default)

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers; empty where the key is missing or null."""
        value = self.config.get(self.key(name))
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(type(one) is int for one in value):
            raise CheckpointError("CORE-M126", f"'{self.key(name)}' is {value!r:.60}, not a list of whole numbers.")
        return tuple(value)

    def count(self, name: str, default: int, *, most: int = MOST_LAYERS) -> int:
        """Return a whole number from 0 to `most`; `default` where the key is missing or null."""
        return self.integer(name, default, most=most) if self.number(name, default, least=0, most=most) else 0

    def flags(self, name: str, count: int) -> tuple[bool, ...] | None:
        """Return a list of zeros and ones, or of truths, for each of `count` layers; None where it is missing."""
        value = self.config.get(self.key(name))
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) != count or not all(one in (0, 1) for one in value):
            text = f"'{self.key(name)}' is {value!r:.60}, not a list of zeros and ones for {count} layers."
            raise CheckpointError("CORE-M126", text)
        return tuple(map(bool, value))

    def refuse(self, *names: str) -> None:
        """Raise an error for each key that is set: what it asks for is not supported."""
        for name in names:
            if self.config.get(self.key(name)):
                value = self.config[self.key(name)]
                raise CheckpointError("CORE-M126", f"'{self.key(name)}' is {value!r:.60}, which is not supported.")

    def expect(self, name: str, *supported: object) -> None:
        """Raise an error where a key is set, and to none of these values."""
        value = self.config.get(self.key(name))
        if value is not None and value not in supported:
            known = " or ".join(map(repr, supported))
            raise CheckpointError("CORE-M126", f"'{self.key(name)}' is {value!r:.60}; supported is {known}.")

    # -- sizes -----------------------------------------------------------------------------------------------------

    def layers(self) -> int:
        """Return the number of layers."""
        return self.integer("num_hidden_layers", most=MOST_LAYERS)

    def heads(self) -> int:
        """Return the number of query heads."""
        return self.integer("num_attention_heads")

    def kv_heads(self, default: int | None = None) -> int:
        """Return the number of heads of keys and values, which the query heads share; by default as many."""
        heads = self.heads()
        count = self.integer("num_key_value_heads", default or heads)
        if heads % count:
            names = f"'{self.key('num_attention_heads')}' is {heads}", f"'{self.key('num_key_value_heads')}'"
            raise CheckpointError("CORE-M126", f"{names[0]}, which {count} ({names[1]}) cannot share.")
        return count

    def head_dim(self) -> int:
        """Return the size of a head: a key, or an equal share of the hidden size."""
        if self.config.get(self.key("head_dim")) is not None:
            return self.integer("head_dim")
        return config_heads(self.config, self.key("hidden_size"), self.key("num_attention_heads"))

    def positions(self, default: int = 2048) -> int:
        """Return the longest context, in tokens."""
        return self.integer("max_position_embeddings", default, most=MOST_POSITIONS)

    def dtype(self, default: str = "bfloat16") -> str:
        """Return the checkpoint's own dtype."""
        return config_dtype(self.config, default)

    # -- layers ----------------------------------------------------------------------------------------------------

    def kinds(self, default: Callable[[int], str]) -> tuple[str, ...]:
        """Return the kind of each layer, `FULL` or `SLIDING`: `layer_types`, or by its number."""
        count, given = self.layers(), config_names(self.config, "layer_types")
        if given is None:
            return tuple(default(index) for index in range(count))
        if len(given) != count or not set(given) <= {SLIDING, FULL}:
            raise CheckpointError("CORE-M126", f"'layer_types' must name {count} layers as {SLIDING} or {FULL}.")
        return given

    def window(self, name: str = "sliding_window") -> int | None:
        """Return the sliding window in tokens; None for none."""
        return None if self.config.get(self.key(name)) is None else self.integer(name)

    def rope(
        self,
        head_dim: int | None = None,
        *,
        theta: float = 10000.0,
        partial: float = 1.0,
        interleaved: bool = False,
        kind: str | None = None,
    ) -> RopeConfig:
        """Return the rotary embedding; arguments as of `rope_config`."""
        usual = ("max_position_embeddings", "rope_theta", "partial_rotary_factor", "rope_scaling")
        renamed = {name: self.config[own] for name in usual if (own := self._keys.get(name)) in self.config}
        return rope_config(
            {**self.config, **renamed},
            head_dim or self.head_dim(),
            theta=theta,
            partial=partial,
            interleaved=interleaved,
            kind=kind,
        )

    def latent(self, usual: Mapping[str, int | None], *, interleaved: bool) -> LatentAttention:
        """Return multi-head latent attention, with DeepSeek's keys.

        Args:
            usual: Sizes where the configuration names none, by its keys; a `q_lora_rank` of None, there or here, is
                queries without a latent.
            interleaved: As in `RopeConfig`.
        """
        sizes = {name: self.integer(name, usual.get(name)) for name in _LATENT_SIZES}
        query = self.config.get("q_lora_rank", usual.get("q_lora_rank"))
        rotated, bias = sizes["qk_rope_head_dim"], self.flag("attention_bias")
        rope = self.rope(rotated, interleaved=interleaved)
        return LatentAttention(
            heads=self.heads(),
            latent_dim=sizes["kv_lora_rank"],
            query_dim=None if query is None else self.integer("q_lora_rank", usual.get("q_lora_rank")),
            key_dim=sizes["qk_nope_head_dim"],
            rope_dim=rotated,
            value_dim=sizes["v_head_dim"],
            scale=(sizes["qk_nope_head_dim"] + rotated) ** -0.5 * _stretched(rope),
            rope=rope,
            bias=bias,
            output_bias=bias,
        )

    # -- tasks -----------------------------------------------------------------------------------------------------

    @property
    def causal(self) -> bool:
        """Whether a token sees only those before it."""
        return self.config.get("is_causal") is not False and not self.config.get("use_bidirectional_attention")

    def pooling(self) -> PoolingShape | None:
        """Return what the checkpoint gives instead of tokens; None if it generates.

        A checkpoint without an output projection, or whose attention is not causal, embeds; one with labels classifies,
        a reward model gives one number, and one of a process the classes of each token.
        """
        name, both_ways = self.architecture, not self.causal
        if name.endswith(_STEPS):
            labels = config_labels({"num_labels": 2, **self.config})
            return PoolingShape(task="classify", method="all", normalize=False, labels=labels, activation="softmax")
        if name.endswith((_SEQUENCE, _REWARD)):
            labels = ("reward",) if name.endswith(_REWARD) else self._labels()
            return PoolingShape(
                task="classify",
                method="last",
                normalize=False,
                bidirectional=both_ways,
                labels=labels,
                activation="none" if name.endswith(_REWARD) else "sigmoid" if len(labels) == 1 else "softmax",
            )
        if both_ways or (name.endswith(_BARE) and not name.endswith(_HEADED)):
            return PoolingShape(method="mean" if both_ways else "last", bidirectional=both_ways)
        return None

    def score(self) -> Score:
        """Return how a classifier gets its numbers: from a layer, or from tokens of a model that generates.

        `classifier_from_token` names the tokens, of which core has found the ids, and `method` how they are read:
        `from_2_way_softmax` as one number, which `is_original_qwen3_reranker` says too, or `no_post_processing`.
        """
        tokens = self.config.get("classifier_token_ids")
        if tokens is None or not self.architecture.endswith(_SEQUENCE):
            return Score()
        self.expect("method", _TWO_WAYS, _EACH)
        difference = self.flag("is_original_qwen3_reranker") or self.config.get("method") == _TWO_WAYS
        if not difference and self.config.get("method") is None:
            text = f"'classifier_from_token' needs 'method' beside it: '{_TWO_WAYS}' or '{_EACH}'."
            raise CheckpointError("CORE-M126", text)
        if difference and len(tokens) != 2:
            raise CheckpointError("CORE-M126", f"'classifier_from_token' names {len(tokens)} tokens, not no and yes.")
        size = self.integer("vocab_size")
        if not all(0 <= one < size for one in tokens):
            raise CheckpointError("CORE-M126", f"'classifier_from_token' has ids beyond 'vocab_size' {size}.")
        return Score(tokens=tuple(tokens), difference=difference)

    def _labels(self) -> tuple[str, ...]:
        """Return the names of the classes."""
        score = self.score()
        if not score.tokens:
            return config_labels(self.config)
        names = tuple(map(str, self.config.get("classifier_from_token") or score.tokens))
        return names[1:] if score.difference else names
