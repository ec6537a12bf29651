"""Worker side: copies between device blocks and files."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from acme_core_blockdir.blockfile import Buffer, read_block, write_block
from acme_core_blockdir.messages import Report, Transfer
from acme_core_blockdir.options import BlockdirOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

log = logging.getLogger(__name__)


class DirectoryMover:
    """A file holds a block of every layer, one layer after another, as the attention backend lays it out."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._path = BlockdirOptions.model_validate(dict(options)).path
        self._caches: Sequence[Tensor] = ()
        self._transfer: Transfer | None = None

    def bind(self, caches: Sequence[Tensor]) -> None:
        """Receive each layer's cache, `(num_blocks, *block_shape)`."""
        self._caches = caches

    def begin(self, message: bytes) -> list[int]:
        """Fill device blocks from files; return those whose file was sound a moment ago and is not any more."""
        transfer = msgspec.msgpack.decode(message, type=Transfer)
        self._transfer = None  # the saves of a step that failed are not made up for
        lost = []
        for key, block in transfer.loads:
            payload = read_block(self._path, key, transfer.size)
            if payload is None:
                log.warning("blockdir: the file of %s went away or changed", key.hex())
                lost.append(block)
            else:
                self._fill(block, payload)
        self._transfer = transfer
        return lost

    def end(self) -> bytes | None:
        """Write files from device blocks. A file that cannot be written is a block that is computed again."""
        transfer, self._transfer = self._transfer, None
        if transfer is None:
            return None
        failed = 0
        for key, block in transfer.saves:
            try:
                write_block(self._path, key, self._bytes_of(block))
            except OSError as error:
                failed += 1
                log.warning("blockdir: cannot write a block: %s", error)
        return msgspec.msgpack.encode(Report(transfer.number, len(transfer.saves) - failed, failed))

    def close(self) -> None:
        """Let go of the caches."""
        self._caches = ()

    def _fill(self, block: int, payload: Buffer) -> None:
        stored, at = torch.frombuffer(payload, dtype=torch.uint8), 0
        for cache in self._caches:
            target = cache[block]
            size = target.numel() * target.element_size()
            target.copy_(stored[at : at + size].view(target.dtype).view(target.shape))
            at += size

    def _bytes_of(self, block: int) -> Buffer:
        layers = [cache[block].contiguous().view(-1).view(torch.uint8).cpu() for cache in self._caches]
        return torch.cat(layers).numpy().data
