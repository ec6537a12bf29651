"""Size of a model by its configuration, compared with the tensors in its files. Torch-free."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping

from core.api.errors import CheckpointError
from core.api.shapes import ModelShape, WeightShape
from core.api.weights import CheckpointInfo

_LAYER = re.compile(r"(?:(?<=\.)|^)\d+(?=\.)")
_BITS = re.compile(r"\d+")
_HINT = "The weights and the configuration do not belong together, or one of the files is damaged."


def require_fitting(checkpoint: CheckpointInfo, shape: ModelShape) -> None:
    """Refuse a configuration that describes another model than the one in the files.

    Raises:
        CheckpointError: CORE-M200 a size differs from a tensor's, or there are fewer layers; CORE-M201 a weight that
            nobody quantized has no floating-point numbers. Both name file, key and tensor.
    """
    if not checkpoint.tensors:
        return
    known = {weight.name: weight for weight in shape.weights}
    layers, packed = set(), Counter[str]()
    for name, (dims, dtype) in checkpoint.tensors.items():
        module, _, part = name.rpartition(".")
        weight = _known(known, f"{module}.weight")
        if weight is None:
            continue
        if found := _LAYER.search(name):
            layers.add(int(found[0]))
        if part == "weight" and _is_plain(checkpoint, name, dtype):
            _compare(checkpoint, weight, name, dims)
        else:
            packed[module] += math.prod(dims) * int((_BITS.search(dtype) or ["8"])[0])
    for module, bits in packed.items():
        _require_room(checkpoint, known, module, bits)
    if any("{}" in name for name in known):
        _require_layers(checkpoint, shape, layers)


def _known(known: Mapping[str, WeightShape], name: str) -> WeightShape | None:
    """Return what is known of a tensor, in whatever modules it is nested."""
    endings = [_LAYER.sub("{}", name, count=1), name]
    while all(endings):
        for ending in endings:
            if ending in known:
                return known[ending]
        # The longest ending counts: a layer may have a module of its own by the name of one outside of layers.
        endings = [ending.partition(".")[2] for ending in endings]
    return None


def _is_plain(checkpoint: CheckpointInfo, name: str, dtype: str) -> bool:
    """Whether a weight has its own shape in the file, and not that of a method's codes."""
    if "float" in dtype or ":" in dtype:
        return True
    if checkpoint.quantization == "none":
        raise CheckpointError(
            "CORE-M201",
            f"{checkpoint.path}: the weight '{name}' is stored as {dtype}, not as floating-point numbers, and "
            f"'quantization_config' of {_source(checkpoint)} names no method.",
            hint="The checkpoint is damaged, or its configuration lacks 'quantization_config'.",
        )
    return False


def _compare(checkpoint: CheckpointInfo, weight: WeightShape, name: str, dims: tuple[int, ...]) -> None:
    wanted = tuple(size for _, size in weight.dims)
    if wanted == dims:
        return
    pairs = zip(weight.dims, dims, strict=False)
    key, size = next((one for one, there in pairs if one[1] != there), weight.dims[0])
    raise CheckpointError(
        "CORE-M200",
        f"{_source(checkpoint)}: with '{key}' {size} the tensor '{name}' has the shape {wanted}, but in "
        f"{checkpoint.path} it has {dims}.",
        hint=_HINT,
    )


def _require_room(checkpoint: CheckpointInfo, known: Mapping[str, WeightShape], module: str, bits: int) -> None:
    """Refuse more weights than a module's codes can be, whatever their method: a bit is the least of each."""
    weight = _known(known, f"{module}.weight")
    if weight is None or math.prod(size for _, size in weight.dims) <= bits or f"{module}.weight" in checkpoint.tensors:
        return
    sizes = " and ".join(f"'{key}' {size}" for key, size in weight.dims)
    raise CheckpointError(
        "CORE-M200",
        f"{_source(checkpoint)}: with {sizes} the layer '{module}' has more weights than the {bits} bits that "
        f"{checkpoint.path} holds for it.",
        hint=_HINT,
    )


def _require_layers(checkpoint: CheckpointInfo, shape: ModelShape, layers: set[int]) -> None:
    """Refuse more layers than there are."""
    missing = next((layer for layer in range(shape.num_layers) if layer not in layers), None)
    if missing is not None:
        raise CheckpointError(
            "CORE-M200",
            f"{_source(checkpoint)}: '{shape.layers_key}' is {shape.num_layers}, but {checkpoint.path} has no tensors "
            f"for layer {missing}.",
            hint=_HINT,
        )


def _source(checkpoint: CheckpointInfo) -> str:
    return checkpoint.config_file or checkpoint.path
