"""What a decoder's checkpoint gives instead of tokens, if it was made to pool. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api import PoolingShape, config_labels

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
        names = config_labels(config)
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
