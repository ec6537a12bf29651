"""Which layers of DeepSeek V3.2 and GLM-5 pick the positions that they see, and which see those of a layer before."""

from __future__ import annotations

from dataclasses import replace

from core_plugin_decoder import Fields, Index, LatentAttention

from core.api import CheckpointError, config_names

_OWN, _SHARED = "full", "shared"
_LETTERS = {"F": _OWN, "S": _SHARED}


def indexed(given: Fields, attention: LatentAttention) -> tuple[LatentAttention, ...]:
    """Return the attention of each layer, limited to picked positions.

    Raises:
        CheckpointError: CORE-M126, the index does not fit the attention, or no layer picks for the first one.
    """
    size = given.integer("index_head_dim")
    if attention.query_dim is None:
        raise CheckpointError("CORE-M126", "'q_lora_rank' is null: index queries are made of the queries' latent.")
    if size < attention.rope_dim:
        raise CheckpointError("CORE-M126", f"'index_head_dim' is {size}, less than the {attention.rope_dim} rotated.")
    rope = attention.rope.model_copy(
        update={"head_dim": size, "interleaved": given.flag("indexer_rope_interleave", default=False)}
    )
    index = Index(heads=given.integer("index_n_heads"), key_dim=size, rope=rope)
    own = replace(attention, picks=given.integer("index_topk"), index=index)
    shared = replace(own, index=None)
    return tuple(own if kind == _OWN else shared for kind in _kinds(given))


def _kinds(given: Fields) -> tuple[str, ...]:
    """Return whether each layer has an index of its own: as named, as a pattern says, or every so many-th."""
    count = given.layers()
    found = config_names(given.config, "indexer_types") or _patterned(given)
    if found is None:
        every, offset = max(1, given.count("index_topk_freq", 1)), given.count("index_skip_topk_offset", 2)
        found = tuple(_SHARED if max(i - offset + 1, 0) % every else _OWN for i in range(count))
    if len(found) != count or not set(found) <= {_OWN, _SHARED} or found[0] != _OWN:
        text = f"'indexer_types' must name {count} layers as {_OWN} or {_SHARED}, the first of them as {_OWN}."
        raise CheckpointError("CORE-M126", text)
    return found


def _patterned(given: Fields) -> tuple[str, ...] | None:
    """Return `index_topk_pattern`, letters or names, as names; None where there is none."""
    pattern = given.config.get("index_topk_pattern")
    if isinstance(pattern, str):
        return tuple(_LETTERS.get(letter, letter) for letter in pattern)
    return config_names(given.config, "index_topk_pattern")
