"""What quantized checkpoints say of their weights, and which of it the methods here read. Torch-free.

Each `..._reasons` returns everything in a `quantization_config` that is not understood. Selection asks them, and so
does the method itself, which is also made without a selection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from core.api import CheckpointError, ProbeResult, QuantRequest, Verdict

GPTQ_BITS = (2, 3, 4, 8)
_GPTQ_FORMATS = ("gptq", "gptq_v2")
_INT8: Mapping[str, tuple[Any, ...]] = {"num_bits": (8,), "type": ("int",), "symmetric": (True,)}
_WEIGHTS = {**_INT8, "strategy": ("channel", "tensor")}
_ACTIVATIONS = {**_INT8, "strategy": ("token",), "dynamic": (True,)}


def awq(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse AWQ checkpoints of other bit widths and layouts."""
    return Verdict.of(*awq_reasons(request.checkpoint))


def gptq(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse GPTQ checkpoints of other bit widths and formats."""
    return Verdict.of(*gptq_reasons(request.checkpoint))


def compressed(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse compressed-tensors checkpoints of other schemes than int8."""
    return Verdict.of(*compressed_reasons(request.checkpoint))


def require(method: str, reasons: Sequence[str]) -> None:
    """Raise `CheckpointError` CORE-M160 if there are reasons against a checkpoint."""
    if reasons:
        raise CheckpointError(
            "CORE-M160",
            f"this {method} checkpoint cannot be read: {'; '.join(reasons)}.",
            hint="Use a checkpoint in another scheme, or install a plugin that reads this one.",
        )


def awq_reasons(given: Mapping[str, object]) -> list[str]:
    """AWQ: 4 bits in the layout `gemm`, in groups of any size."""
    bits, layout = given.get("bits", given.get("w_bit", 4)), given.get("version", "gemm")
    return _reasons(
        None if bits == 4 else f"weights of {bits!r:.60} bits, not 4",
        None if str(layout).lower() == "gemm" else f"layout {layout!r:.60}, not 'gemm'",
        _size_reason(awq_group_size(given)),
    )


def awq_group_size(given: Mapping[str, object]) -> object:
    """Return the inputs of a group, as given."""
    return given.get("group_size", given.get("q_group_size", 128))


def gptq_reasons(given: Mapping[str, object]) -> list[str]:
    """GPTQ: 2, 3, 4 and 8 bits, the same everywhere."""
    bits, form = given.get("bits", 4), given.get("checkpoint_format") or "gptq"
    return _reasons(
        None if type(bits) is int and bits in GPTQ_BITS else f"weights of {bits!r:.60} bits, not 2, 3, 4, 8",
        None if form in _GPTQ_FORMATS else f"format {form!r:.60}, not 'gptq' or 'gptq_v2'",
        _size_reason(given.get("group_size", 128)),
        "settings that differ from layer to layer ('dynamic')" if given.get("dynamic") else None,
        "weights in marlin's order ('is_marlin_format')" if given.get("is_marlin_format") else None,
    )


def compressed_reasons(given: Mapping[str, object]) -> list[str]:
    """compressed-tensors: symmetric int8 weights, activations int8 per token or as they are."""
    groups, form = _mapping(given.get("config_groups")), given.get("format", "int-quantized")
    sparse = _mapping(given.get("sparsity_config"))
    reasons = _reasons(
        None if form == "int-quantized" else f"format {form!r:.60}, not 'int-quantized'",
        None if len(groups) == 1 else f"{len(groups)} groups of layers, not one",
        f"sparse weights ({sparse.get('format')!s:.60}, {sparse.get('sparsity_structure')})"
        if sparse.get("format", "dense") != "dense"
        else None,
        "inputs are transformed (transform_config)"
        if _mapping(given.get("transform_config")).get("config_groups")
        else None,
        _ignored_reason(given.get("ignore") or ()),
    )
    for name, value in groups.items():
        group = _mapping(value)
        reasons += [f"{name} ({_title(group)}): {reason}" for reason in _group_reasons(group)]
    return reasons


def _ignored_reason(names: object) -> str | None:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return f"'ignore' {names!r:.60}, not a list of names"
    for pattern in (name.removeprefix("re:") for name in names if name.startswith("re:")):
        try:
            re.compile(pattern)
        except re.error as error:
            return f"'ignore' with {pattern!r:.60}, which is no regular expression ({error})"
    return None


def _group_reasons(group: Mapping[str, Any]) -> list[str]:
    targets, activations = group.get("targets"), group.get("input_activations")
    reasons = [] if targets in (["Linear"], ("Linear",)) else [f"targets {targets!r:.60}, not ['Linear']"]
    reasons += _differing("weights", _mapping(group.get("weights")), _WEIGHTS)
    return reasons + (_differing("input_activations", _mapping(activations), _ACTIVATIONS) if activations else [])


def _title(group: Mapping[str, Any]) -> str:
    """Return the usual short name of a scheme: `W4A16`, `W8A8 float`."""
    weights, activations = _mapping(group.get("weights")), _mapping(group.get("input_activations"))
    kind = " float" if weights.get("type") == "float" else ""
    return f"W{weights.get('num_bits', '?')!s:.9}A{activations.get('num_bits', 16)!s:.9}{kind}"


def _differing(what: str, given: Mapping[str, Any], known: Mapping[str, tuple[Any, ...]]) -> list[str]:
    return [
        f"{what} with {key} {given.get(key)!r:.60}, not {' or '.join(map(repr, values))}"
        for key, values in known.items()
        if given.get(key) not in values
    ]


def _size_reason(size: object) -> str | None:
    return None if type(size) is int and (size > 0 or size == -1) else f"groups of {size!r:.60} inputs"


def _reasons(*found: str | None) -> list[str]:
    return [reason for reason in found if reason]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
