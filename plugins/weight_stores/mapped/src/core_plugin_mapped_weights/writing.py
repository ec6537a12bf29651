"""Writes a file of packed weights: piece by piece, complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from zlib import crc32

import torch

from core_plugin_mapped_weights.layout import ALIGNED, Layout, planned

if TYPE_CHECKING:
    from torch import Tensor

PIECE = 8 * 2**20
"""Bytes written between two questions whether to go on."""


class GivenUpError(Exception):
    """Nobody wants the file any more."""


def layout_for(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> Layout:
    """Return the layout of a file that holds `tensors`."""
    return planned(
        ((name, str(one.dtype).removeprefix("torch."), tuple(one.shape)) for name, one in tensors.items()), about
    )


def write(file: int, layout: Layout, tensors: Mapping[str, Tensor], wanted: Callable[[], bool]) -> None:
    """Write the file of an open, empty one, and have it reach the disk.

    Raises:
        GivenUpError: `wanted` said so.
        OSError: It cannot be written.
    """
    _all(file, layout.header)
    checksum = 0
    for place in layout.places:
        host = tensors[place.name].detach().contiguous().reshape(-1).view(torch.uint8).cpu()
        data: memoryview = host.numpy().data
        for begin in range(0, place.num_bytes, PIECE):
            if not wanted():
                raise GivenUpError
            piece = data[begin : begin + PIECE]
            checksum = crc32(piece, checksum)
            _all(file, piece)
        pad = bytes(-place.num_bytes % ALIGNED)
        checksum = crc32(pad, checksum)
        _all(file, pad)
    _all(file, layout.end(checksum))
    os.fsync(file)


def _all(file: int, data: bytes | memoryview) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
