"""Reading a checkpoint's `config.json` in a model plugin: what every family needs, with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api.errors import CheckpointError


def config_architecture(config: Mapping[str, Any], default: str) -> str:
    """Return the architecture's name; `default` where `architectures` is missing."""
    names = config.get("architectures") or ()
    return str(names[0]) if names else default


def config_dtype(config: Mapping[str, Any], default: str) -> str:
    """Return the checkpoint's own dtype, under either of transformers' keys; `default` where neither is there."""
    return str(config.get("dtype") or config.get("torch_dtype") or default).removeprefix("torch.")


def config_int(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Return a positive integer; `default` where the key is missing or null.

    Raises:
        CheckpointError: CORE-M126, it is something else, or missing without a default.
    """
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CheckpointError("CORE-M126", f"the model configuration needs a positive integer '{key}', got {value!r}.")
    return value


def config_labels(config: Mapping[str, Any]) -> tuple[str, ...]:
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
