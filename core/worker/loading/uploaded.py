"""Plain tensors of a checkpoint on their way to the device, while those before them are taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from core.layers.params import release

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from core.api.platform import Uploads
    from core.api.weights import WeightTensor

AHEAD = 2
"""Tensors that are read and copied beside the one that is taken: a large one hides what small ones wait for."""


class Uploaded:
    """A `WeightTensor` whose values are on the device, or will be when they are asked for."""

    encoding = "plain"

    def __init__(self, tensor: WeightTensor, values: Future[Tensor]) -> None:
        self.name, self.shape = tensor.name, tensor.shape
        self._values: Future[Tensor] | None = values

    def raw(self) -> Tensor:
        """Return the values as they are stored."""
        if self._values is None:
            raise ValueError(f"tensor '{self.name}' was released")
        return self._values.result()

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`."""
        return self.raw().to(dtype)

    def release(self) -> None:
        """Give back what it takes on the device; it cannot be read any more."""
        self._values = None


def uploaded(tensors: Iterable[WeightTensor], uploads: Uploads) -> Iterator[WeightTensor]:
    """Yield tensors in their order: plain ones from the device's memory, the others as they are."""
    waiting: deque[WeightTensor] = deque()
    pool, whole = ThreadPoolExecutor(AHEAD, "upload"), False
    try:
        for tensor in tensors:
            plain = tensor.encoding == Uploaded.encoding
            waiting.append(Uploaded(tensor, pool.submit(_upload, tensor, uploads)) if plain else tensor)
            if len(waiting) > AHEAD:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
        whole = True
    finally:
        pool.shutdown(cancel_futures=not whole)  # what was yielded may be read later
        uploads.close()


def _upload(tensor: WeightTensor, uploads: Uploads) -> Tensor:
    copied = uploads.upload(tensor.raw())
    release(tensor)
    return copied
