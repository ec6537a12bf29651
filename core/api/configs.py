"""Reading a checkpoint's `config.json` in a model plugin: what every family needs, with errors that name the key.

Every number is held against bounds here, before anybody makes room for what it counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from core.api.errors import CheckpointError

MOST_SIZE = 2**27
"""Greatest size of anything that a configuration counts; the largest vocabularies have about 2**18 tokens."""

MOST_LAYERS = 10_000
"""Greatest number of layers."""

MOST_POSITIONS = 2**24
"""Longest context, in tokens; the longest that models were made for is about 10 million."""

DTYPES = ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8")
"""Names that a configuration may give as the dtype of its checkpoint."""


_MOST_LABELS = 2**20


def config_architecture(config: Mapping[str, Any], default: str) -> str:
    """Return the architecture's name; `default` where `architectures` is missing."""
    names = config.get("architectures") or ()
    return str(names[0]) if names else default


def config_dtype(config: Mapping[str, Any], default: str) -> str:
    """Return the checkpoint's own dtype, under either of transformers' keys; `default` for none and for `auto`.

    Raises:
        CheckpointError: CORE-M126, it is not the name of a dtype.
    """
    key = "dtype" if config.get("dtype") else "torch_dtype"
    given = config.get(key) or default
    name = given.removeprefix("torch.") if isinstance(given, str) else ""
    if name == "auto":
        return default
    if name not in DTYPES:
        raise CheckpointError("CORE-M126", f"'{key}' is {given!r:.40}, not one of {', '.join(DTYPES)}.")
    return name


def config_int(config: Mapping[str, Any], key: str, default: int | None = None, *, most: int = MOST_SIZE) -> int:
    """Return a positive integer of at most `most`; `default` where the key is missing or null.

    Raises:
        CheckpointError: CORE-M126, it is something else, or missing without a default.
    """
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        text = f"the model configuration needs a positive integer '{key}', got {_shown(value)}."
        raise CheckpointError("CORE-M126", text)
    if value > most:
        raise CheckpointError("CORE-M126", f"'{key}' is {_shown(value)}, more than the {most} that any model has.")
    return value


def config_number(
    config: Mapping[str, Any], key: str, default: float, *, least: float = 0.0, most: float = 1.0
) -> float:
    """Return a finite number from `least` to `most`; `default` where the key is missing or null.

    Raises:
        CheckpointError: CORE-M126, it is something else.
    """
    value = config.get(key)
    number = finite(default if value is None else value)
    if number is None or not least <= number <= most:
        raise CheckpointError("CORE-M126", f"'{key}' is {_shown(value)}, not a number from {least:g} to {most:g}.")
    return number


def config_object(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a JSON object, empty where the key is missing or null. Raises `CheckpointError` CORE-M126."""
    value = config.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise CheckpointError("CORE-M126", f"'{key}' is {_shown(value)}, not an object.")
    return value or {}


def config_names(config: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    """Return a list of names, None where the key is missing or null. Raises `CheckpointError` CORE-M126."""
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise CheckpointError("CORE-M126", f"'{key}' is {_shown(value)}, not a list of names.")
    return tuple(value)


def config_heads(config: Mapping[str, Any], hidden: str, heads: str) -> int:
    """Return the size of an attention head where every head takes an equal share of the hidden size.

    Args:
        hidden, heads: Keys of the hidden size and of the number of heads.

    Raises:
        CheckpointError: CORE-M126, the heads do not share it equally.
    """
    size, count = config_int(config, hidden), config_int(config, heads)
    if size % count:
        raise CheckpointError("CORE-M126", f"'{hidden}' is {size}, which {count} heads ('{heads}') cannot share.")
    return size // count


def config_labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the classes in the order of the head's outputs.

    Raises:
        CheckpointError: CORE-M126, `id2label` does not number its labels from 0 on.
    """
    given = config.get("id2label")
    if given is None:
        return tuple(f"LABEL_{index}" for index in range(config_int(config, "num_labels", 2, most=_MOST_LABELS)))
    try:
        named = {int(key): str(value) for key, value in given.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise CheckpointError("CORE-M126", f"'id2label' does not map numbers to labels: {error}.") from error
    if sorted(named) != list(range(len(named))) or not named:
        raise CheckpointError("CORE-M126", f"'id2label' must number its labels from 0 on, got {sorted(named)[:8]}.")
    return tuple(named[index] for index in range(len(named)))


def finite(value: object) -> float | None:
    """Return a number as float; None for what is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number of more than 308 digits
        return None


def _shown(value: object) -> str:
    """Return a value as an error shows it; Python refuses to write numbers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    return f"{value!r:.60}"
