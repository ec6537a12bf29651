"""Memory of tensors, counted: what is alive at a time of what a block of code makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class HeldMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of tensors that operations within it make; those that were there before count nothing.

    Attributes:
        peak: Most bytes that were alive at a time.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation, and count the storages of its results that are none of its arguments."""
        given = {_storage(one) for one in tree_leaves((args, kwargs or {})) if isinstance(one, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor) and _storage(one) not in given:
                storage = one.untyped_storage()
                reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._alive[_storage(one)] = reference, storage.nbytes()
        dead = [key for key, (one, _) in self._alive.items() if one.expired()]  # type: ignore[no-untyped-call]
        for key in dead:
            del self._alive[key]
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return result


def _storage(tensor: torch.Tensor) -> int:
    """Return what tells storages apart while they are alive."""
    return int(tensor.untyped_storage()._cdata)
