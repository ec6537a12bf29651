"""Configuration keys that only Gemma 2 and Gemma 3 have, from GGUF metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core_plugin_gguf.architecture import Facts

_PATTERNS = {"gemma2": 2, "gemma3": 6}
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
