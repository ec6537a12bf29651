"""How torchao's configurations store a weight. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.api import WeightForm

TILE = 1024
"""Inputs of a weight in tiles are filled up to a multiple of this."""

_FLOATS = ("float8_e4m3fn", "float8_e5m2")
_MX = {_FLOATS[0]: (_FLOATS[0], "float8:32"), "float4_e2m1fn_x2": ("e2m1", "e2m1:32")}
"""Numbers in runs of 32: codes of weights, and how activations are rounded."""


class UnreadError(ValueError):
    """A configuration is not understood; the message says what of it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the weight of a layer is stored.

    Attributes:
        tensor: The class of torchao whose tensors a file has (`Int4Tensor`).
        form: Form of the codes.
    """

    tensor: str
    form: WeightForm


def layout_of(given: object) -> Layout:
    """Return the layout of a configuration, as `config_to_dict` writes it. Raises `UnreadError`."""
    name, data = kind_of(given), mapping(mapping(given).get("_data"))
    if name not in _CONFIGS:
        raise UnreadError(f"{name!r:.60}, not {', '.join(_CONFIGS)}")
    try:
        return _CONFIGS[name](data)
    except UnreadError as error:
        raise UnreadError(f"{name} with {error}") from error


def kind_of(given: object) -> str:
    """Return the name of a written object's class; empty where there is none."""
    return str(mapping(given).get("_type", ""))


def mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping, an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def _int4(data: Mapping[str, Any]) -> Layout:
    size, packing = _size(data.get("group_size", 128)), _named(data, "int4_packing_format", "PLAIN")
    form = WeightForm(codes="int", bits=4, inputs=size, zeros=True)
    if packing == "PLAIN":
        return Layout("Int4Tensor", form)
    if packing != "TILE_PACKED_TO_4D":
        raise UnreadError(f"int4_packing_format {packing!r:.60}, not 'PLAIN' or 'TILE_PACKED_TO_4D'")
    if data.get("int4_tile_packed_ntile", 8) != 8:
        raise UnreadError(f"tiles of {data['int4_tile_packed_ntile']!r:.60} outputs (int4_tile_packed_ntile), not 8")
    if TILE % size:
        raise UnreadError(f"groups of {size} inputs in tiles of {TILE}")
    return Layout("Int4TilePackedTo4dTensor", form)


def _int8(data: Mapping[str, Any]) -> Layout:
    if data.get("group_size") is not None:
        return Layout("Int8Tensor", WeightForm(codes="int", bits=8, inputs=_size(data["group_size"])))
    return Layout("Int8Tensor", _shared(WeightForm(codes="int", bits=8), data.get("granularity")))


def _int8_dynamic(data: Mapping[str, Any]) -> Layout:
    form = WeightForm(codes="int", bits=8, activations="int8:token")
    return Layout("Int8Tensor", _shared(form, _of_weights(data.get("granularity"))))


def _float8(data: Mapping[str, Any]) -> Layout:
    return Layout("Float8Tensor", WeightForm(codes=_float(data, "weight_dtype")))


def _float8_dynamic(data: Mapping[str, Any]) -> Layout:
    if _named(data, "packing_format", "PLAIN") != "PLAIN":
        raise UnreadError(f"packing_format {_named(data, 'packing_format', '')!r:.60}, not 'PLAIN'")
    if (rounded := _float(data, "activation_dtype")) != _FLOATS[0]:
        raise UnreadError(f"activations in {rounded}, not {_FLOATS[0]}")
    form = _shared(WeightForm(codes=_float(data, "weight_dtype")), _of_weights(data.get("granularity")))
    blocks = form.outputs > 1 and form.inputs > 1
    return Layout("Float8Tensor", form.replace(activations="float8:128" if blocks else "float8:token"))


def _intx(data: Mapping[str, Any]) -> Layout:
    """Weights alone are read as rounded: rounding activations to 8 bits with zero points belongs to mobile kernels."""
    bits = re.fullmatch(r"int([1-8])", _dtype(data, "weight_dtype", "int8"))
    if bits is None:
        raise UnreadError(f"weight_dtype {_dtype(data, 'weight_dtype', '')!r:.60}, not 'int1' to 'int8'")
    packing = _named(data, "intx_packing_format", "UNPACKED_TO_INT8")
    if packing != "UNPACKED_TO_INT8":
        raise UnreadError(f"intx_packing_format {packing!r:.60}, not 'UNPACKED_TO_INT8'")
    mapped = next(
        (_named(data, key, "") for key in ("mapping_type", "weight_mapping_type") if key in data), "SYMMETRIC"
    )
    form = WeightForm(codes="int", bits=int(bits[1]), zeros=not mapped.startswith("SYMMETRIC"))
    granularity = data.get("granularity", data.get("weight_granularity"))
    return Layout("IntxUnpackedToInt8Tensor", _shared(form, granularity))


def _mx(data: Mapping[str, Any]) -> Layout:
    weights, activations = (_dtype(data, key, _FLOATS[0]) for key in ("weight_dtype", "activation_dtype"))
    for key, name in (("weight_dtype", weights), ("activation_dtype", activations)):
        if name not in _MX:
            raise UnreadError(f"{key} {name!r:.60}, not {' or '.join(_MX)}")
    if (size := data.get("block_size", 32)) != 32:
        raise UnreadError(f"runs of {size!r:.60} inputs (block_size), not 32")
    codes, rounds = _MX[weights][0], _MX[activations][1]
    return Layout("MXTensor", WeightForm(codes=codes, inputs=32, scale="e8m0", activations=rounds))


def _nvfp4(data: Mapping[str, Any]) -> Layout:
    return Layout("NVFP4Tensor", WeightForm(codes="e2m1", inputs=16, scale="e4m3"))


def _nvfp4_dynamic(data: Mapping[str, Any]) -> Layout:
    if (step := _named(data, "step", "CONVERT")) != "CONVERT":
        raise UnreadError(f"step {step!r:.60}, not 'CONVERT'")
    return Layout("NVFP4Tensor", _nvfp4(data).form.replace(activations="e2m1:16"))


_CONFIGS: dict[str, Callable[[Mapping[str, Any]], Layout]] = {
    "Int4WeightOnlyConfig": _int4,
    "Int8WeightOnlyConfig": _int8,
    "Int8DynamicActivationInt8WeightConfig": _int8_dynamic,
    "Float8WeightOnlyConfig": _float8,
    "Float8DynamicActivationFloat8WeightConfig": _float8_dynamic,
    "IntxWeightOnlyConfig": _intx,
    "Int8DynamicActivationIntxWeightConfig": _intx,
    "MXDynamicActivationMXWeightConfig": _mx,
    "NVFP4WeightOnlyConfig": _nvfp4,
    "NVFP4DynamicActivationNVFP4WeightConfig": _nvfp4_dynamic,
}


def _of_weights(granularity: object) -> object:
    """Return what is said of weights: the second of a pair, or what is said of both."""
    if isinstance(granularity, list | tuple):
        return granularity[-1] if granularity else None
    return granularity


def _shared(form: WeightForm, granularity: object) -> WeightForm:
    """Return a form whose outputs and inputs share scales as a granularity says; without one, those of an output."""
    name, data = kind_of(granularity), mapping(mapping(granularity).get("_data"))
    if granularity is None or (name == "PerRow" and data.get("dim", -1) in (-1, 1)):
        return form
    if name == "PerAxis" and data.get("axis") == 0:
        return form
    if name == "PerTensor":
        return form.replace(outputs=0)
    if name == "PerGroup":
        return form.replace(inputs=_size(data.get("group_size")))
    size = data.get("block_size")
    if name == "PerBlock" and isinstance(size, list | tuple) and len(size) == 2:
        return form.replace(outputs=_size(size[0]), inputs=_size(size[1]))
    raise UnreadError(f"granularity {name!r:.60} {dict(data)!r:.60}")


def _size(size: object) -> int:
    if type(size) is not int or size < 1:
        raise UnreadError(f"groups of {size!r:.60} inputs")
    return size


def _named(data: Mapping[str, Any], key: str, usual: str) -> str:
    """Return the name of a written member of an enumeration."""
    value = data.get(key)
    found = mapping(value).get("_data", value)
    return usual if found is None else str(found).upper()


def _dtype(data: Mapping[str, Any], key: str, usual: str) -> str:
    value = data.get(key)
    found = mapping(value).get("_data", value)
    return usual if found is None else str(found).removeprefix("torch.")


def _float(data: Mapping[str, Any], key: str) -> str:
    name = _dtype(data, key, _FLOATS[0])
    if name not in _FLOATS:
        raise UnreadError(f"{key} {name!r:.60}, not {' or '.join(_FLOATS)}")
    return name
