"""Exchange between ranks over `torch.distributed`; one rank alone needs nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from core.api.errors import EngineError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

LIBRARIES = {"nccl": "NCCL", "xccl": "XCCL", "gloo": "Gloo"}
"""Backends of torch.distributed, and what their makers call them."""


def has(backend: str) -> bool:
    """Say whether the installed torch has a backend."""
    known = getattr(dist, f"is_{backend}_available", None)
    return dist.is_available() and known is not None and bool(known())


class Alone:
    """A group of one rank: everything is there already."""

    rank, world_size, alignment = 0, 1, 1

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Return the tensor."""
        return tensor

    def all_gather(self, tensor: Tensor, dim: int) -> Tensor:
        """Return the tensor."""
        return tensor

    def all_to_all(self, tensor: Tensor, splits: Sequence[int]) -> Tensor:
        """Return the tensor."""
        return tensor

    def broadcast(self, tensor: Tensor, source: int) -> Tensor:
        """Return the tensor."""
        return tensor

    def barrier(self) -> None:
        """Return at once."""

    def close(self) -> None:
        """There is nothing to close."""


class Group:
    """The ranks of a process group; a `CollectiveFacet`. No call writes to the tensor that it is given.

    Args:
        backend: Of torch.distributed.
        store: Where the ranks find each other.

    Raises:
        EngineError: CORE-E138, the installed torch does not have the backend.
    """

    alignment = 1

    def __init__(self, backend: str, device: torch.device, store: Store, rank: int, size: int) -> None:
        if not has(backend):
            library = LIBRARIES.get(backend, backend)
            raise EngineError(
                "CORE-E138",
                f"{size} ranks on {device.type} devices exchange by {library}, which torch {torch.__version__} lacks.",
                hint=f"Install a torch that is built with {library}, or use one device.",
            )
        self.rank, self.world_size, self._device = rank, size, device
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks."""
        total = tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    def all_gather(self, tensor: Tensor, dim: int) -> Tensor:
        """Return every rank's tensor, concatenated along `dim`."""
        own = tensor.movedim(dim, 0).contiguous()
        every = own.new_empty((self.world_size * len(own), *own.shape[1:]))
        dist.all_gather_into_tensor(_bytes(every), _bytes(own))
        return every.movedim(0, dim)

    def all_to_all(self, tensor: Tensor, splits: Sequence[int]) -> Tensor:
        """Send `splits[r]` leading rows to rank r. The host waits: how much arrives is asked first."""
        sent = torch.tensor(splits, dtype=torch.int64, device=self._device)
        counts = torch.empty_like(sent)
        dist.all_to_all_single(counts, sent)
        arriving = counts.tolist()
        own = tensor.contiguous()
        found = own.new_empty((sum(arriving), *own.shape[1:]))
        dist.all_to_all_single(_bytes(found), _bytes(own), arriving, list(splits))
        return found

    def broadcast(self, tensor: Tensor, source: int) -> Tensor:
        """Return rank `source`'s tensor."""
        found = tensor.clone(memory_format=torch.contiguous_format)
        dist.broadcast(_bytes(found), source)
        return found

    def barrier(self) -> None:
        """Wait for every rank."""
        ids: dict[str, Any] = {} if self._device.index is None else {"device_ids": [self._device.index]}
        dist.barrier(**ids)

    def close(self) -> None:
        """Leave the group. Harmless twice."""
        if dist.is_initialized():
            dist.destroy_process_group()


def _bytes(tensor: Tensor) -> Tensor:
    """Return floats of 8 bits as bytes, which every backend carries; other tensors as they are."""
    return tensor.view(torch.uint8) if tensor.is_floating_point() and tensor.element_size() == 1 else tensor
