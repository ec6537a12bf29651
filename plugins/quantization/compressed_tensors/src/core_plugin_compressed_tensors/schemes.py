"""Schemes: how the weights of a group of layers are stored, and how their activations are rounded. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.api import WeightForm

FP8 = "float8_e4m3fn"


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme.

    Attributes:
        layout: How tensors hold it: a key of `LAYOUTS`.
        form: Of the weights.
        fixed: Whether the checkpoint has the scales of activations.
    """

    layout: str
    form: WeightForm
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """Settings that one format of tensors may have.

    Attributes:
        weights: Key of a group's `weights` -> values that are read; None: a size of any kind.
        activations: Key of `input_activations` -> values -> the rounding. None of them: activations are as they are.
    """

    weights: Mapping[str, tuple[Any, ...]]
    activations: Mapping[tuple[tuple[str, Any], ...], str] = field(default_factory=dict)


def _given(**values: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(values.items())


_INT8_TOKEN = {_given(num_bits=8, type="int", symmetric=True, strategy="token", dynamic=True): "int8:token"}
_FP8_TOKEN = {_given(num_bits=8, type="float", strategy="token", dynamic=True): "float8:token"}
_FP8_ALL = {
    **_FP8_TOKEN,
    _given(num_bits=8, type="float", strategy="tensor", dynamic=True): "float8:tensor",
    _given(num_bits=8, type="float", strategy="tensor", dynamic=False): "float8:tensor",
    _given(num_bits=8, type="float", strategy="group", group_size=128, dynamic=True): "float8:128",
}
_FP4_RUNS = {
    _given(num_bits=4, type="float", strategy="tensor_group", group_size=16, dynamic=dynamic): "e2m1:16"
    for dynamic in ("local", True)
}
_MX_RUNS = {
    _given(num_bits=4, type="float", strategy="group", group_size=32, dynamic=True): "e2m1:32",
    _given(num_bits=8, type="float", strategy="group", group_size=32, dynamic=True): "float8:32",
}

LAYOUTS: Mapping[str, Layout] = {
    "int-quantized": Layout(
        {"num_bits": (4, 8), "type": ("int",), "strategy": ("channel", "tensor", "group")}, _INT8_TOKEN
    ),
    "float-quantized": Layout(
        {"num_bits": (8,), "type": ("float",), "symmetric": (True,), "strategy": ("channel", "tensor", "block")},
        _FP8_ALL,
    ),
    "pack-quantized": Layout(
        {"num_bits": (4, 8), "type": ("int",), "strategy": ("channel", "group")}, {**_INT8_TOKEN, **_FP8_TOKEN}
    ),
    "nvfp4-pack-quantized": Layout(
        {"num_bits": (4,), "type": ("float",), "strategy": ("tensor_group",), "group_size": (16,)}, _FP4_RUNS
    ),
    "mxfp4-pack-quantized": Layout(
        {"num_bits": (4,), "type": ("float",), "strategy": ("group",), "group_size": (32,)}, _MX_RUNS
    ),
    "mxfp8-quantized": Layout(
        {"num_bits": (8,), "type": ("float",), "strategy": ("group",), "group_size": (32,)}, _MX_RUNS
    ),
}
"""Values of `format`, of a group or of all."""

_ORDERS = (None, False, "group", "weight", "static")
"""Values of `actorder`: in the last two, groups follow each other."""


def layout_of(group: Mapping[str, Any], given: Mapping[str, object]) -> str:
    """Return the name of the layout of a group: its own, or that of all."""
    name = str(group.get("format") or given.get("format") or "int-quantized")
    if name in ("naive-quantized", "mixed-precision"):
        kind = mapping(group.get("weights")).get("type", "int")
        return "float-quantized" if kind == "float" else "int-quantized"
    return name


def scheme_of(group: Mapping[str, Any], given: Mapping[str, object]) -> Scheme:
    """Return the scheme of a group in which nothing is wrong."""
    name, weights = layout_of(group, given), mapping(group.get("weights"))
    activations = mapping(group.get("input_activations"))
    rounds = _rounding(LAYOUTS[name], activations) if activations else "as_is"
    outputs, inputs = _sizes(weights)
    form = {
        "int-quantized": WeightForm(codes="int", bits=weights.get("num_bits", 8)),
        "pack-quantized": WeightForm(codes="int", bits=weights.get("num_bits", 4)),
        "float-quantized": WeightForm(codes=FP8),
        "nvfp4-pack-quantized": WeightForm(codes="e2m1", scale="e4m3"),
        "mxfp4-pack-quantized": WeightForm(codes="e2m1", scale="e8m0"),
        "mxfp8-quantized": WeightForm(codes=FP8, scale="e8m0"),
    }[name]
    form = form.replace(
        outputs=outputs,
        inputs=inputs,
        zeros=not weights.get("symmetric", True),
        ordered=weights.get("actorder") == "group",
        activations=rounds or "as_is",
    )
    return Scheme(name, form, fixed=rounds == "float8:tensor" and not activations.get("dynamic"))


def reasons_of(group: Mapping[str, Any], given: Mapping[str, object]) -> list[str]:
    """Return everything in a group that is not understood."""
    name, weights = layout_of(group, given), mapping(group.get("weights"))
    if name not in LAYOUTS:
        return [f"format {name!r:.60}, not {', '.join(LAYOUTS)}"]
    layout = LAYOUTS[name]
    reasons = [
        f"weights with {key} {weights.get(key)!r:.60}, not {' or '.join(map(repr, values))}"
        for key, values in layout.weights.items()
        if weights.get(key, True if key == "symmetric" else None) not in values
    ]
    reasons += _of_sizes(weights)
    if weights.get("actorder") not in _ORDERS:
        reasons.append(f"weights with actorder {weights['actorder']!r:.60}")
    activations = mapping(group.get("input_activations"))
    if activations and _rounding(layout, activations) is None:
        shown = {key: activations.get(key) for key in ("num_bits", "type", "symmetric", "strategy", "dynamic")}
        reasons.append(f"input_activations {', '.join(f'{key} {value!r:.30}' for key, value in shown.items())}")
    if group.get("output_activations"):
        reasons.append("output_activations are rounded")
    return reasons


def title(group: Mapping[str, Any]) -> str:
    """Return the usual short name of a scheme: `W4A16`, `W8A8 float`."""
    weights, activations = mapping(group.get("weights")), mapping(group.get("input_activations"))
    kind = " float" if weights.get("type") == "float" else ""
    return f"W{weights.get('num_bits', '?')!s:.9}A{activations.get('num_bits', 16)!s:.9}{kind}"


def mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping as it is, and of anything else an empty one."""
    return value if isinstance(value, Mapping) else {}


def _rounding(layout: Layout, activations: Mapping[str, Any]) -> str | None:
    """Return the rounding of activations; None where it is none of the layout's."""
    usual = {"symmetric": True, "type": "int", "dynamic": False}
    given = {**usual, **{key: value for key, value in activations.items() if value is not None}}
    if not given["symmetric"]:
        return None
    for wanted, name in layout.activations.items():
        if all(given.get(key) == value and type(given.get(key)) is type(value) for key, value in wanted):
            return name
    return None


def _sizes(weights: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many outputs and inputs share a scale; 0: all."""
    strategy = weights.get("strategy")
    if strategy == "block":
        outputs, inputs = weights["block_structure"]
        return outputs, inputs
    if strategy == "tensor":
        return 0, 0
    return 1, 0 if strategy == "channel" else weights["group_size"]


def _of_sizes(weights: Mapping[str, Any]) -> list[str]:
    strategy, size, block = weights.get("strategy"), weights.get("group_size"), weights.get("block_structure")
    if strategy in ("group", "tensor_group") and not (type(size) is int and size > 0):
        return [f"weights with group_size {size!r:.60}"]
    two = isinstance(block, list | tuple) and len(block) == 2 and all(type(one) is int and one > 0 for one in block)
    return [f"weights with block_structure {block!r:.60}"] if strategy == "block" and not two else []
