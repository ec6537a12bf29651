"""Worker side: the bytes, and the copies between them and the device."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from core_plugin_cpu_offload.transfer import Report, Transfer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


class HostMover:
    """One host tensor per cache, `(slots, *block_shape)`, made with the first message; the system commits its pages
    as they are written."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._decoder = msgspec.msgpack.Decoder(Transfer)
        self._caches: Sequence[Tensor] = ()
        self._hosts: list[Tensor] = []
        self._transfer: Transfer | None = None
        self._load_us = 0

    def bind(self, caches: Sequence[Tensor]) -> None:
        """Receive the caches, `(num_blocks, *block_shape)`."""
        self._caches = caches
        self._hosts = []

    def begin(self, message: bytes) -> None:
        """Fill device blocks from host slots. Saves of a step that never came to its end are called off."""
        transfer = self._transfer = self._decoder.decode(message)
        if not self._hosts:
            shapes = [(transfer.slots, *cache.shape[1:]) for cache in self._caches]
            self._hosts = [torch.empty(shape, dtype=cache.dtype) for shape, cache in zip(shapes, self._caches)]
        started = time.perf_counter_ns()
        if transfer.loads:
            slots, blocks = _indices(transfer.loads)
            for cache, host in zip(self._caches, self._hosts):
                cache.index_copy_(0, blocks.to(cache.device), host.index_select(0, slots).to(cache.device))
        self._load_us = _microseconds_since(started)

    def end(self) -> bytes | None:
        """Fill host slots from device blocks; report, or None if `begin` had no message in this step."""
        transfer, self._transfer = self._transfer, None
        if transfer is None:
            return None
        started = time.perf_counter_ns()
        if transfer.saves:
            slots, blocks = _indices(transfer.saves)
            for cache, host in zip(self._caches, self._hosts):
                host.index_copy_(0, slots, cache.index_select(0, blocks.to(cache.device)).to(host.device))
        return msgspec.msgpack.encode(Report(transfer.number, self._load_us, _microseconds_since(started)))

    def close(self) -> None:
        """Give the host memory back."""
        self._hosts = []
        self._caches = ()


def _indices(pairs: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    slots, blocks = torch.tensor(pairs, dtype=torch.int64).unbind(1)
    return slots, blocks


def _microseconds_since(started: int) -> int:
    return (time.perf_counter_ns() - started) // 1000
