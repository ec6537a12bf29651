"""Tensors of safetensors files, read through a memory map."""

from __future__ import annotations

import mmap
import warnings
from typing import TYPE_CHECKING

import torch

from core_plugin_huggingface.faults import damaged
from core_plugin_huggingface.header import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from core_plugin_huggingface.files import Shard
    from core_plugin_huggingface.header import Entry


class SafeTensor:
    """One tensor; a `WeightTensor`. The file stays mapped for as long as the tensor, or a value of it, is kept."""

    encoding = "plain"

    def __init__(self, entry: Entry, data: mmap.mmap, start: int) -> None:
        self.name = entry.name
        self.shape = entry.shape
        self._dtype: torch.dtype = getattr(torch, DTYPES[entry.dtype])
        self._data = data
        self._begin = start + entry.begin
        self._size = entry.num_bytes

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`; without a copy if that is how they are stored."""
        return self.raw().to(dtype)

    def raw(self) -> Tensor:
        """Return the tensor as stored. It shares memory with the file and must not be written to."""
        if self._size == 0:
            return torch.empty(self.shape, dtype=self._dtype)
        with warnings.catch_warnings():
            # torch warns of memory that it cannot write to; nobody writes to weights.
            warnings.simplefilter("ignore")
            stored = torch.frombuffer(self._data, dtype=torch.uint8, offset=self._begin, count=self._size)
        return stored.view(self._dtype).view(self.shape)

    def release(self) -> None:
        """Give the memory back in which the file shows; the tensor can still be read."""
        begin = self._begin // mmap.PAGESIZE * mmap.PAGESIZE
        if self._size and hasattr(mmap, "MADV_DONTNEED"):
            self._data.madvise(mmap.MADV_DONTNEED, begin, self._begin + self._size - begin)


def read_tensors(shards: Sequence[Shard], progress: Callable[[int], None]) -> Iterator[SafeTensor]:
    """Yield every tensor of all files in order, each file mapped when its turn comes.

    Raises:
        CheckpointError: CORE-M130, a file cannot be mapped.
    """
    for shard in shards:
        data, start = _map(shard)
        for entry in shard.entries:
            yield SafeTensor(entry, data, start)
            progress(entry.num_bytes)


def _map(shard: Shard) -> tuple[mmap.mmap, int]:
    """Map a file; return where its tensors' data starts as well."""
    try:
        with shard.path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise damaged(shard.path, f"it cannot be read ({error})") from error
    return data, 8 + int.from_bytes(data[:8], "little")
