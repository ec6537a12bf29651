"""What a checkpoint's head does, and its labels. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.api import CheckpointError, PoolingShape

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
        names = labels(config)
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
            labels=labels(config),
            activation="softmax",
        )
    if architecture == COLBERT:
        return PoolingShape(method="all", bidirectional=True, size=size(config, "dim", _COLBERT_SIZE))
    return PoolingShape(task="embed", method="mean", bidirectional=True)


def labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the classes in the order of the head's outputs.

    Raises:
        CheckpointError: CORE-M126, `id2label` does not number its labels from 0 on.
    """
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


def size(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Return a positive integer of a configuration. Raises `CheckpointError` CORE-M126."""
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CheckpointError("CORE-M126", f"the model configuration needs a positive integer '{key}', got {value!r}.")
    return value


def architecture(config: Mapping[str, Any], default: str) -> str:
    """Return the architecture's name; `default` where `architectures` is missing."""
    names = config.get("architectures") or ()
    return str(names[0]) if names else default


def dtype(config: Mapping[str, Any]) -> str:
    """Return the checkpoint's own dtype; old configurations that do not say are float32."""
    return str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
