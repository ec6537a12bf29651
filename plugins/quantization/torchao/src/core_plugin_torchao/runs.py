"""Tensors of torchao's classes whose runs of inputs have scales of small types: `MXTensor` and `NVFP4Tensor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.packing import codes_of_bytes

from core.api import Part, Stored
from core_plugin_torchao.config import CODES, contradicted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from core.api import WeightForm, WeightTensor

_SCALE, _WHOLE, _FIXED = "_weight_scale", "_weight_per_tensor_scale", "_weight_act_per_tensor_scale"
_ALONE = (None, None)

_CODES = {"e2m1": torch.uint8, "float8_e4m3fn": torch.float8_e4m3fn}
_SCALES = {"e8m0": torch.float8_e8m0fnu, "e4m3": torch.float8_e4m3fn}

TILE = 128
"""Outputs of a tile of scales, which has those of 4 runs of each."""


def mx_stored(form: WeightForm) -> Sequence[Stored]:
    """`qdata (out, in)` float8, or of two codes of e2m1 to a byte `(out, in / 2)`; `scale (out, runs)`, or in tiles.

    Tiles follow each other whatever the tensor's shape, so that scales can only be taken as a whole.
    """
    codes = Stored(CODES)
    if form.codes == "e2m1":
        codes = Stored(CODES, per=(1, form.inputs), unit=(1, form.inputs // 2))
    return codes, Stored(_SCALE, _ALONE, count=0, whole=True)


def mx_read(form: WeightForm, size: tuple[int, int], tensors: Mapping[str, WeightTensor]) -> Part:
    """Return codes one by one, and a scale for each run."""
    codes, due = tensors[CODES].raw(), _CODES[form.codes]
    if codes.dtype != due:
        raise contradicted(f"'{tensors[CODES].name}' holds {codes.dtype}, not {due}")
    scales = _by_outputs(tensors[_SCALE], _SCALES[form.scale], (size[0], -(-size[1] // form.inputs)))
    return Part(form, codes_of_bytes(codes) if form.codes == "e2m1" else codes, scales)


def nvfp4_stored(form: WeightForm) -> Sequence[Stored]:
    """As of `MXTensor`, and perhaps `per_tensor_scale` and `act_per_tensor_scale`, one number each."""
    return *mx_stored(form), *(Stored(name, _ALONE, optional=True) for name in (_WHOLE, _FIXED))


def nvfp4_read(form: WeightForm, size: tuple[int, int], tensors: Mapping[str, WeightTensor]) -> Part:
    """Return codes and scales; where the weight has no scale for all of it, activations have none either."""
    part = mx_read(form, size, tensors)
    whole, fixed = (
        tensors[name].dense(torch.float32).view(()) if name in tensors else None for name in (_WHOLE, _FIXED)
    )
    part.tensor_scale = torch.ones((), device=part.codes.device) if whole is None else whole
    if form.activations != "as_is":
        part.input_scale = part.tensor_scale if whole is None else fixed
    return part


def _by_outputs(tensor: WeightTensor, dtype: torch.dtype, shape: tuple[int, int]) -> Tensor:
    """Return scales `(outputs, runs)`, taken out of their tiles.

    A tile has 128 outputs and 4 runs: output `32 i + j` is in row `j`, behind those of smaller `i`.
    """
    stored = tensor.raw()
    if stored.dtype not in (dtype, torch.uint8):
        raise contradicted(f"'{tensor.name}' holds {stored.dtype}, not {dtype}")
    down, across = -(-shape[0] // TILE), -(-shape[1] // 4)
    tiled = (down * 32, across * 16)
    if tuple(stored.shape) not in (shape, tiled):
        raise contradicted(f"'{tensor.name}' has shape {tuple(stored.shape)}, not {shape}, nor {tiled} in tiles")
    bare = stored.view(torch.uint8)  # not every dtype of one byte can be rearranged
    if tuple(stored.shape) == tiled:
        tiles = bare.reshape(down, across, 32, 4, 4).permute(0, 3, 2, 1, 4)
        bare = tiles.reshape(down * TILE, across * 4)[: shape[0], : shape[1]].contiguous()
    return bare if dtype == torch.float8_e8m0fnu else bare.view(dtype)


def check_tiles(tensors: Mapping[str, WeightTensor], outputs: int) -> None:
    """Hold the scales of one of several experts against its outputs: those of all are put into tiles together.

    Raises:
        CheckpointError: CORE-M160, a tile would have outputs of two experts.
    """
    scales = tensors.get(_SCALE)
    if scales is not None and scales.shape[0] != outputs and outputs % TILE:
        raise contradicted(f"'{scales.name}' has tiles of {TILE} outputs, which do not divide an expert's {outputs}")
