"""Classifiers that read tokens of a generating model: the ids of the tokens that a configuration names. Torch-free."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.api.errors import CheckpointError
from core.api.weights import CheckpointInfo

TOKENS, IDS = "classifier_from_token", "classifier_token_ids"
"""Keys of a configuration: the tokens as people write them (texts or ids), and the ids that models are given."""


def with_token_ids(checkpoint: CheckpointInfo) -> CheckpointInfo:
    """Return a checkpoint's facts with the ids of the tokens that its configuration makes classes of.

    Raises:
        CheckpointError: CORE-M126, the vocabulary has no such token, or there is none to look in.
    """
    tokens = checkpoint.config.get(TOKENS)
    if tokens is None:
        return checkpoint
    if not isinstance(tokens, list) or not tokens or not all(type(one) in (str, int) for one in tokens):
        raise CheckpointError("CORE-M126", f"'{TOKENS}' must be a list of tokens or of their ids, not {tokens!r:.60}.")
    vocabulary = _vocabulary(checkpoint) if any(isinstance(one, str) for one in tokens) else {}
    ids = [one if isinstance(one, int) else vocabulary.get(one) for one in tokens]
    for token, found in zip(tokens, ids, strict=True):
        if found is None:
            raise CheckpointError("CORE-M126", f"'{TOKENS}': the tokenizer has no token {token!r:.40}.")
    return checkpoint.model_copy(update={"config": {**checkpoint.config, IDS: ids}})


def _vocabulary(checkpoint: CheckpointInfo) -> Mapping[str, int]:
    """Return token -> id of the checkpoint's `tokenizer.json`."""
    path = Path(checkpoint.path)
    path = (path if path.is_dir() else path.parent) / "tokenizer.json"
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        vocabulary = stored["model"]["vocab"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            "CORE-M126",
            f"'{TOKENS}' names tokens by their text, and {path} cannot be read: {error}.",
            hint="Give the tokens' ids instead.",
        ) from error
    pieces = vocabulary.items() if isinstance(vocabulary, dict) else zip((one[0] for one in vocabulary), range(2**31))
    return {**dict(pieces), **{one["content"]: one["id"] for one in stored.get("added_tokens") or ()}}
