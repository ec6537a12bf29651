"""Tensors of a GGUF file under Hugging Face's names."""

from __future__ import annotations

import mmap
import warnings
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import torch

from core_plugin_gguf.blocks import decode
from core_plugin_gguf.faults import bad_tensor_type, damaged
from core_plugin_gguf.formats import DECODABLE, FLOATS
from core_plugin_gguf.kinds import SIZES
from core_plugin_gguf.scalars import scalars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from core.api import WeightTensor
    from core_plugin_gguf.header import Header, TensorInfo
    from core_plugin_gguf.names import Conventions, Place


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """One tensor of the model; a `WeightTensor`.

    Attributes:
        place: What it is in the file's tensor `info`.
    """

    place: Place
    header: Header
    info: TensorInfo

    @property
    def name(self) -> str:
        """Hugging Face's name."""
        return self.place.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that it has there."""
        return self.place.shape

    @property
    def encoding(self) -> str:
        """`plain`, also of blocks that must be opened to give Hugging Face's values; or `gguf:` and the type."""
        plain = self.info.kind in FLOATS or self.place.opened
        return "plain" if plain else f"gguf:{self.info.kind.name}"

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`, in memory of their own. Raises `CheckpointError` CORE-M142: no such decoder."""
        if self.info.kind not in DECODABLE:
            raise bad_tensor_type(self.header.path, self.info.name, self.info.kind.name)
        stored, place = self._bytes(), self.place
        block, block_bytes = SIZES[self.info.kind]
        columns = stored.shape[1] // block_bytes * block
        if place.offset or place.decays:  # rounded once, with its own values
            exact = decode(stored, self.info.kind, columns, torch.float32)
            exact = exact.neg().log() if place.decays else exact.sub_(place.offset)
            return exact.to(dtype).view(self.shape)
        values = decode(stored, self.info.kind, columns, dtype)
        if place.columns and place.order is not None:
            return place.order.undone(values.t().contiguous()).t()
        return values.t() if place.turned else values.view(self.shape)

    def raw(self) -> Tensor:
        """Return what is stored: `(rows, bytes per row)` uint8 if encoded, else the values in their own dtype.

        The tensor shares memory with the file and must not be written to, except where rows had to be reordered,
        blocks to be opened, or values were changed.
        """
        if self.encoding != "plain":
            return self._bytes()
        if self.info.kind not in FLOATS or self.place.columns or self.place.decays:
            return self.dense(torch.float32)
        values = self._bytes().view(getattr(torch, FLOATS[self.info.kind]))
        if self.place.turned:
            return values.t()
        values = values.view(self.shape)
        return values - self.place.offset if self.place.offset else values

    def release(self) -> None:
        """Give the memory back in which the file shows; the tensor can still be read."""
        first, size = self.info.offset, self.info.num_bytes
        partial = prod(self.place.shape) < prod(self.info.shape)
        if partial and len(self.place.shape) < len(self.info.shape):  # the others of its tensor come next
            size //= self.info.shape[0]
            first += self.place.first * size
        begin = first // mmap.PAGESIZE * mmap.PAGESIZE
        if size and hasattr(mmap, "MADV_DONTNEED"):
            self.header.data.madvise(mmap.MADV_DONTNEED, begin, first + size - begin)

    def _bytes(self) -> Tensor:
        """Return the stored rows as bytes; a row of an array of one dimension is a number where rows have an order."""
        info, place = self.info, self.place
        with warnings.catch_warnings():
            # torch warns of memory that it cannot write to; nobody writes to weights.
            warnings.simplefilter("ignore")
            flat = torch.frombuffer(self.header.data, dtype=torch.uint8, offset=info.offset, count=info.num_bytes)
        if place.order is not None and not place.columns:
            rows = place.order.undone(flat.view(info.shape[0], -1))
            return rows[place.first : place.first + place.shape[0]]
        if prod(place.shape) == prod(info.shape):
            block, block_bytes = SIZES[info.kind]
            return flat.view(-1, info.shape[-1] // block * block_bytes)
        rows = flat.view(info.shape[0], -1)
        if len(place.shape) == len(info.shape):
            return rows[place.first : place.first + place.shape[0]]
        own = rows[place.first : place.first + 1]
        return own.view(place.shape[0], -1) if len(place.shape) > 1 else own


@dataclass(frozen=True, slots=True)
class KeysAndValues:
    """The keys and values of all heads of latent attention, `(heads * (key + value), latent)`; a `WeightTensor`.

    Args:
        keys: `(heads, latent, key)`.
        values: `(heads, value, latent)`.
    """

    place: Place
    keys: GGUFTensor
    values: GGUFTensor
    encoding: str = "plain"

    @property
    def name(self) -> str:
        """Hugging Face's name."""
        return self.place.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that it has there."""
        return self.place.shape

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`. Raises `CheckpointError` CORE-M142: no such decoder."""
        keys, values = self.keys.dense(dtype), self.values.dense(dtype)
        return torch.cat((keys.transpose(1, 2), values), dim=1).view(self.shape)

    def raw(self) -> Tensor:
        """Return the values in float32: blocks of keys lie across the rows."""
        return self.dense(torch.float32)

    def release(self) -> None:
        """Give the memory back in which the file shows; the tensor can still be read."""
        self.keys.release()
        self.values.release()


def read_tensors(
    parts: Sequence[Header], conventions: Conventions, progress: Callable[[int], None]
) -> Iterator[WeightTensor]:
    """Yield the tensors of all files in order, then those that metadata holds."""
    for header in parts:
        for info in header.tensors:
            for place in conventions.places(info):
                yield _joined(parts, place, header, info) if place.keys else GGUFTensor(place, header, info)
            progress(info.num_bytes)
    yield from scalars(parts[0], conventions)


def _joined(parts: Sequence[Header], place: Place, header: Header, info: TensorInfo) -> KeysAndValues:
    """Return keys and values. Raises `CheckpointError` CORE-M141: the keys are missing, or of other sizes."""
    found = ((part, tensor) for part in parts for tensor in part.tensors if tensor.name == place.keys)
    part, keys = next(found, (header, None))
    if keys is None:
        raise damaged(header.path, f"tensor {place.keys} is missing")
    heads, size, latent = info.shape
    due = (heads, latent, place.shape[0] // heads - size)
    if keys.shape != due:
        raise damaged(part.path, f"tensor {keys.name} has shape {keys.shape}, but with {info.name} it has {due}")
    whole = [
        GGUFTensor(replace(place, name=one.name, shape=one.shape, keys=""), at, one)
        for at, one in ((part, keys), (header, info))
    ]
    return KeysAndValues(place, *whole)
