"""Heads of checkpoints: linear layers, pooling and activation. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.api import CheckpointError, PoolingShape, config_int, config_labels

SEQUENCE, TOKEN = "ForSequenceClassification", "ForTokenClassification"
COLBERT = "HF_ColBERT"
"""BERT with a linear layer on every token, whose vectors are compared token by token."""

_COLBERT_SIZE = 128

Activation = Literal["none", "sigmoid", "softmax"]


@dataclass(frozen=True, slots=True)
class Dense:
    """One linear layer of a head, with what comes behind it.

    Attributes:
        prefix: Where its weights are in the checkpoint.
        then: `tanh`, `relu`, another activation's name, or nothing.
        norm: Prefix of a layer norm behind the activation, or nothing.
    """

    prefix: str
    out_features: int
    then: str = ""
    norm: str = ""
    bias: bool = True


def pooling(config: Mapping[str, Any], architecture: str, method: Literal["mean", "cls"] = "cls") -> PoolingShape:
    """Return what a model of this architecture gives.

    Args:
        method: How a head on whole texts wants the tokens reduced.
    """
    if architecture.endswith(SEQUENCE):
        names = config_labels(config)
        return PoolingShape(
            task="classify",
            method=method,
            normalize=False,
            bidirectional=True,
            labels=names,
            activation=_activation(config, len(names)),
        )
    if architecture.endswith(TOKEN):
        return PoolingShape(
            task="classify",
            method="all",
            normalize=False,
            bidirectional=True,
            labels=config_labels(config),
            activation="softmax",
        )
    if architecture == COLBERT:
        return PoolingShape(method="all", bidirectional=True, size=config_int(config, "dim", _COLBERT_SIZE))
    return PoolingShape(task="embed", method="mean", bidirectional=True)


def _activation(config: Mapping[str, Any], count: int) -> Activation:
    """Return what turns outputs into probabilities; makers of cross-encoders may have named a torch class for it."""
    settings = config.get("sentence_transformers")
    named = settings.get("activation_fn") if isinstance(settings, Mapping) else None
    named = named or config.get("sbert_ce_default_activation_function")
    if isinstance(named, str):
        known: dict[str, Activation] = {"Identity": "none", "Sigmoid": "sigmoid", "Softmax": "softmax"}
        kind = named.rpartition(".")[2]
        if kind not in known:
            raise CheckpointError("CORE-M126", f"the activation '{named}' of the scores is not {', '.join(known)}.")
        return known[kind]
    return "sigmoid" if count == 1 or config.get("problem_type") == "multi_label_classification" else "softmax"
