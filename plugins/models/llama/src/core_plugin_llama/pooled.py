"""What a decoder's checkpoint gives instead of tokens, if it was made to pool. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api import CheckpointError, PoolingShape

GENERATES, BARE, SEQUENCE = "ForCausalLM", "Model", "ForSequenceClassification"
"""Kinds of architecture: with an output projection, without one, with a head on the last token."""


def pooling(config: Mapping[str, Any], architecture: str) -> PoolingShape | None:
    """Return what the checkpoint was made to give; None if it generates.

    A checkpoint without an output projection, or whose attention is not causal (`is_causal` is false), embeds.

    Raises:
        CheckpointError: CORE-M126, `id2label` does not number its labels from 0 on.
    """
    both_ways = config.get("is_causal") is False
    if architecture.endswith(SEQUENCE):
        names = _labels(config)
        return PoolingShape(
            task="classify",
            method="last",
            normalize=False,
            bidirectional=both_ways,
            labels=names,
            activation="sigmoid" if len(names) == 1 else "softmax",
        )
    if both_ways or architecture.endswith(BARE):
        return PoolingShape(method="mean" if both_ways else "last", bidirectional=both_ways)
    return None


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    given = config.get("id2label")
    if given is None:
        count = config.get("num_labels")
        return tuple(f"LABEL_{index}" for index in range(count if isinstance(count, int) and count > 0 else 2))
    try:
        named = {int(key): str(value) for key, value in given.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise CheckpointError("CORE-M126", f"'id2label' does not map numbers to labels: {error}.") from error
    if sorted(named) != list(range(len(named))) or not named:
        raise CheckpointError("CORE-M126", f"'id2label' must number its labels from 0 on, got {sorted(named)[:8]}.")
    return tuple(named[index] for index in range(len(named)))
