"""Configuration keys that only Gemma 2 to 4, 3n and EmbeddingGemma have, from GGUF metadata."""

from __future__ import annotations

import struct
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from core_plugin_gguf.architecture import ROPE_FREQUENCIES
from core_plugin_gguf.faults import damaged
from core_plugin_gguf.reads import FULL, SLIDING, layer_types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core_plugin_gguf.architecture import Facts

_PATTERNS = {"gemma2": 2, "gemma3": 6, "gemma-embedding": 6}
_WINDOWS = {"gemma2": 4096}
"""Window of files that name none."""

_BY_HIDDEN_SIZE = {("gemma2", 46), ("gemma3", 62)}
"""Architecture and layers of the models (of 27 billion parameters) whose scores are scaled by `hidden_size / heads`
instead of the size of a head. Files do not say so: ggml's runtime knows them by their layers too."""


def gemma(facts: Facts) -> Mapping[str, Any]:
    """Return the further keys and values. Raises `CheckpointError` CORE-M141: a number makes no sense."""
    header, arch, config = facts.header, facts.arch, facts.config
    by_hidden = (arch, config["num_hidden_layers"]) in _BY_HIDDEN_SIZE
    share = config["hidden_size"] // config["num_attention_heads"]
    found: dict[str, Any] = {
        "query_pre_attn_scalar": share if by_hidden else config["head_dim"],
        "sliding_window": header.integer(f"{arch}.attention.sliding_window") or _WINDOWS.get(arch),
        "rope_local_base_freq": header.positive_number(f"{arch}.rope.freq_base_swa", 10000.0, least=1.0, most=1e12),
        "sliding_window_pattern": header.positive_integer(f"{arch}.attention.sliding_window_pattern", _PATTERNS[arch]),
    }
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        cap = header.number(f"{arch}.{key}")
        if cap is not None:
            found[key] = cap or None
    return found


def gemma3n(facts: Facts) -> Mapping[str, Any]:
    """Return the further keys and values of Gemma 3n. Raises `CheckpointError` CORE-M141: a file contradicts itself."""
    header, key, layers = facts.header, facts.key, facts.config["num_hidden_layers"]
    table, rank = (facts.tensors.get(f"{one}.weight") for one in ("per_layer_token_embd", "blk.0.laurel_l"))
    scales = header.numbers(key("activation_sparsity_scale")) or [float("-inf")] * layers
    if table is None or rank is None or len(scales) != layers:
        raise damaged(header.path, f"a table, a matrix or a share of activations is missing of {layers} layers")
    return {
        "layer_types": layer_types(facts, 5) or [FULL] * layers,
        "sliding_window": header.positive_integer(key("attention.sliding_window")),
        "num_kv_shared_layers": header.integer(key("attention.shared_kv_layers")) or 0,
        "final_logit_softcapping": header.number(key("final_logit_softcapping")) or None,
        "hidden_size_per_layer_input": header.positive_integer(key("embedding_length_per_layer_input")),
        "vocab_size_per_layer_input": table.shape[0],
        "altup_num_inputs": header.positive_integer(key("altup.num_inputs")),
        "altup_active_idx": header.integer(key("altup.active_idx")) or 0,
        "laurel_rank": rank.shape[0],
        "activation_sparsity_pattern": [_share(one) for one in scales],
        "rope_parameters": {
            SLIDING: {"rope_type": "default", "rope_theta": _base(facts, "rope.freq_base_swa", 1e4)},
            FULL: {"rope_type": "default", "rope_theta": _base(facts, "rope.freq_base", 1e6)},
        },
    }


def _share(deviations: float) -> float:
    """Return the share of a normal distribution below so many deviations, as somebody wrote it."""
    return round(NormalDist().cdf(deviations), 6)


def gemma4(facts: Facts) -> Mapping[str, Any]:
    """Return the further keys and values of Gemma 4. Raises `CheckpointError` CORE-M141: a file contradicts itself."""
    header, key, layers = facts.header, facts.key, facts.config["num_hidden_layers"]
    kinds = layer_types(facts, 6) or [FULL] * layers
    shared = header.integer(key("attention.shared_kv_layers")) or 0
    sizes = header.numbers(key("feed_forward_length")) if header.is_array(key("feed_forward_length")) else None
    own = [layer for layer in range(layers - shared) if kinds[layer] == FULL]
    inputs = header.integer(key("embedding_length_per_layer_input")) or 0
    found: dict[str, Any] = {
        "layer_types": kinds,
        "sliding_window": header.positive_integer(key("attention.sliding_window")),
        "global_head_dim": header.positive_integer(key("attention.key_length")),
        "num_kv_shared_layers": shared,
        "use_double_wide_mlp": sizes is not None and len(set(sizes)) > 1,
        "attention_k_eq_v": any(f"blk.{layer}.attn_v.weight" not in facts.tensors for layer in own),
        "num_global_key_value_heads": _kv_heads(facts, kinds),
        "final_logit_softcapping": header.number(key("final_logit_softcapping")) or None,
        "hidden_size_per_layer_input": inputs,
        "rope_parameters": {
            SLIDING: {"rope_type": "default", "rope_theta": _base(facts, "rope.freq_base_swa", 1e4)},
            FULL: {
                "rope_type": "proportional",
                "partial_rotary_factor": _rotating(facts),
                "rope_theta": _base(facts, "rope.freq_base", 1e6),
            },
        },
    }
    table = facts.tensors.get("per_layer_token_embd.weight")
    return found if table is None else {**found, "vocab_size_per_layer_input": table.shape[0]}


def _base(facts: Facts, name: str, default: float) -> float:
    return facts.header.positive_number(facts.key(name), default, least=1.0, most=1e12)


def _kv_heads(facts: Facts, kinds: list[str]) -> int | None:
    """Return the heads of keys in layers that see the whole context, where the file counts them layer by layer."""
    name = facts.key("attention.head_count_kv")
    if not facts.header.is_array(name):
        return None
    counts = facts.header.numbers(name) or []
    found = {int(count) for count, kind in zip(counts, kinds, strict=False) if kind == FULL}
    if len(counts) != len(kinds) or len(found) != 1:
        raise damaged(facts.header.path, f"{name} does not go with the kinds of the {len(kinds)} layers")
    return found.pop()


def _rotating(facts: Facts) -> float:
    """Return the share of a head that rotates: the others' frequencies are divided by what makes them nothing."""
    tensor = facts.tensors.get(ROPE_FREQUENCIES)
    if tensor is None:
        return 1.0
    divisors: tuple[float, ...] = struct.unpack_from(f"<{tensor.num_bytes // 4}f", facts.header.data, tensor.offset)
    count = sum(divisor == 1 for divisor in divisors)
    if not count or any(divisor < _NEVER for divisor in divisors[count:]):
        raise damaged(facts.header.path, f"{tensor.name} holds divisors that are neither 1 nor without end")
    return count / len(divisors)


_NEVER = 1e20
