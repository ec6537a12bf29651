"""Tensors of a GGUF file under Hugging Face's names."""

from __future__ import annotations

import mmap
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from gguf.constants import GGML_QUANT_SIZES

from core_plugin_gguf.blocks import decode
from core_plugin_gguf.faults import bad_tensor_type, damaged
from core_plugin_gguf.formats import DECODABLE, FLOATS
from core_plugin_gguf.names import ROPE_FREQUENCIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from core_plugin_gguf.header import Header, TensorInfo
    from core_plugin_gguf.names import Conventions


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """One tensor; a `WeightTensor`.

    Attributes:
        heads: Heads whose rows are stored interleaved (see `_halves_first`); 0 for rows in plain order.
        offset: What the converter added to the values, to be taken off again.
    """

    name: str
    shape: tuple[int, ...]
    encoding: str
    heads: int
    offset: float
    header: Header
    info: TensorInfo

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`, in memory of their own. Raises `CheckpointError` CORE-M142: no such decoder."""
        if self.info.kind not in DECODABLE:
            raise bad_tensor_type(self.header.path, self.info.name, self.info.kind.name)
        columns = self.shape[-1] if self.heads == 0 or len(self.shape) > 1 else 1
        if self.offset:  # rounded once, without the offset
            exact = decode(self._bytes(), self.info.kind, columns, torch.float32)
            return exact.sub_(self.offset).to(dtype).view(self.shape)
        return decode(self._bytes(), self.info.kind, columns, dtype).view(self.shape)

    def raw(self) -> Tensor:
        """Return what is stored: `(rows, bytes per row)` uint8 if encoded, else the values in their own dtype.

        The tensor shares memory with the file and must not be written to, except where rows had to be reordered or
        values had an offset.
        """
        stored = self._bytes()
        if self.encoding != "plain":
            return stored
        values = stored.view(getattr(torch, FLOATS[self.info.kind])).view(self.shape)
        return values - self.offset if self.offset else values

    def release(self) -> None:
        """Give the memory back in which the file shows; the tensor can still be read."""
        begin = self.info.offset // mmap.PAGESIZE * mmap.PAGESIZE
        if self.info.num_bytes and hasattr(mmap, "MADV_DONTNEED"):
            self.header.data.madvise(mmap.MADV_DONTNEED, begin, self.info.offset + self.info.num_bytes - begin)

    def _bytes(self) -> Tensor:
        """Return the stored rows as bytes, a row being a head's unit where heads are interleaved."""
        info = self.info
        with warnings.catch_warnings():
            # torch warns of memory that it cannot write to; nobody writes to weights.
            warnings.simplefilter("ignore")
            flat = torch.frombuffer(self.header.data, dtype=torch.uint8, offset=info.offset, count=info.num_bytes)
        if self.heads:
            return _halves_first(flat.view(self.shape[0], -1), self.heads)
        block, block_bytes = GGML_QUANT_SIZES[info.kind]
        return flat.view(-1, self.shape[-1] // block * block_bytes)


def read_tensors(
    parts: Sequence[Header], conventions: Conventions, progress: Callable[[int], None]
) -> Iterator[GGUFTensor]:
    """Yield the tensors of all files in order."""
    for header in parts:
        for info in header.tensors:
            if info.name != ROPE_FREQUENCIES:
                yield _tensor(header, info, conventions)
            progress(info.num_bytes)


def _tensor(header: Header, info: TensorInfo, conventions: Conventions) -> GGUFTensor:
    encoding = "plain" if info.kind in FLOATS else f"gguf:{info.kind.name}"
    count, offset = conventions.heads_of(info.name), conventions.offset_of(info.name)
    if count and info.shape[0] % (2 * count):
        raise damaged(header.path, f"the {info.shape[0]} rows of tensor {info.name} are not pairs for {count} heads")
    return GGUFTensor(conventions.name(info.name), info.shape, encoding, count, offset, header, info)


def _halves_first(rows: Tensor, heads: int) -> Tensor:
    """Undo the row order of interleaved rotary embedding.

    Llama's converter stores the rows of a head as 0, d/2, 1, d/2 + 1, ... so that the two that rotate together are
    neighbours; Hugging Face's models rotate row i with row i + d/2.
    """
    return rows.view(heads, -1, 2, rows.shape[1]).transpose(1, 2).reshape(rows.shape)
