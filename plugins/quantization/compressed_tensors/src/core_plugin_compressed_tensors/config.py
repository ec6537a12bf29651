"""What a compressed-tensors checkpoint says of itself. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from core.api import CheckpointError

_WEIGHTS: dict[str, tuple[Any, ...]] = {
    "num_bits": (8,),
    "type": ("int",),
    "symmetric": (True,),
    "strategy": ("channel", "tensor"),
}
_ACTIVATIONS: dict[str, tuple[Any, ...]] = {
    "num_bits": (8,),
    "type": ("int",),
    "symmetric": (True,),
    "strategy": ("token",),
    "dynamic": (True,),
}


@dataclass(frozen=True, slots=True)
class CompressedConfig:
    """Settings of a checkpoint.

    Attributes:
        rounds_activations: Whether activations are rounded to int8 per token.
        ignored: Layers that are not quantized: names, or `re:` and a regular expression.
    """

    rounds_activations: bool
    ignored: tuple[str, ...]

    @staticmethod
    def read(given: Mapping[str, object]) -> CompressedConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        groups = cast("Mapping[str, Mapping[str, Any]]", given.get("config_groups") or {})
        if given.get("format", "int-quantized") != "int-quantized" or len(groups) != 1:
            raise _unsupported(f"format {given.get('format')!r} with {len(groups)} groups of layers")
        (group,) = groups.values()
        if list(group.get("targets", ())) != ["Linear"]:
            raise _unsupported(f"targets {group.get('targets')!r}")
        _check("weights", group.get("weights") or {}, _WEIGHTS)
        activations = group.get("input_activations")
        if activations:
            _check("input_activations", activations, _ACTIVATIONS)
        ignored = cast("Sequence[str]", given.get("ignore") or ())
        return CompressedConfig(bool(activations), tuple(ignored))

    def quantizes(self, module: str) -> bool:
        """Whether the linear layer with this path is quantized."""
        return not any(_matches(name, module) for name in self.ignored)


def _matches(name: str, module: str) -> bool:
    return re.match(name[3:], module) is not None if name.startswith("re:") else name == module


def _check(what: str, given: Mapping[str, Any], known: Mapping[str, tuple[Any, ...]]) -> None:
    for key, values in known.items():
        if given.get(key) not in values:
            raise _unsupported(f"{what} with {key} {given.get(key)!r} (known: {', '.join(map(repr, values))})")


def _unsupported(what: str) -> CheckpointError:
    return CheckpointError(
        "CORE-M160",
        f"compressed-tensors {what} are not supported.",
        hint="Supported are symmetric int8 weights per channel or tensor, with activations dynamic per token or plain.",
    )
