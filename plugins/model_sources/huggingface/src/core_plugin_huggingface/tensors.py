"""Tensors of safetensors files, read through a memory map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from core_plugin_huggingface.faults import damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import torch
    from torch import Tensor

    from core_plugin_huggingface.files import Shard


class SafeTensor:
    """One tensor; a `WeightTensor`. The file stays mapped for as long as the tensor is kept."""

    encoding = "plain"

    def __init__(self, name: str, shape: tuple[int, ...], file: Any) -> None:
        self.name = name
        self.shape = shape
        self._file = file

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`; without a copy if that is how they are stored."""
        return self.raw().to(dtype)

    def raw(self) -> Tensor:
        """Return the tensor as stored."""
        stored: Tensor = self._file.get_tensor(self.name)
        return stored


def read_tensors(shards: Sequence[Shard], progress: Callable[[int], None]) -> Iterator[SafeTensor]:
    """Yield every tensor of all files in order, each file mapped when its turn comes."""
    for shard in shards:
        file = _open(shard.path)
        for entry in shard.entries:
            yield SafeTensor(entry.name, entry.shape, file)
            progress(entry.num_bytes)


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise damaged(path, f"the safetensors library refuses it ({error})") from error
