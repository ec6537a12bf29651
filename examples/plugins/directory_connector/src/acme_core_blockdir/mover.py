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
    """A file holds the blocks of all cache groups, of each every cache's, as the attention backend lays it out."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._path = BlockdirOptions.model_validate(dict(options)).path
        self._caches: Sequence[Tensor] = ()
        self._transfer: Transfer | None = None

    def bind(self, caches: Sequence[Tensor]) -> None:
        """Receive the caches, `(num_blocks, *block_shape)`."""
        self._caches = caches

    def begin(self, message: bytes) -> list[int]:
        """Fill device blocks from files; return those whose file was sound a moment ago and is not any more."""
        transfer = msgspec.msgpack.decode(message, type=Transfer)
        self._transfer = None  # the saves of a step that failed are not made up for
        lost = []
        for key, blocks in transfer.loads:
            payload = read_block(self._path, key, transfer.size)
            if payload is None:
                log.warning("blockdir: the file of %s went away or changed", key.hex())
                lost += [block for block in blocks if block]
            else:
                self._fill(blocks, payload)
        self._transfer = transfer
        return lost

    def end(self) -> bytes | None:
        """Write files from device blocks. A file that cannot be written is a block that is computed again."""
        transfer, self._transfer = self._transfer, None
        if transfer is None:
            return None
        failed = 0
        for key, blocks in transfer.saves:
            try:
                write_block(self._path, key, self._bytes_of(blocks))
            except OSError as error:
                failed += 1
                log.warning("blockdir: cannot write a block: %s", error)
        return msgspec.msgpack.encode(Report(transfer.number, len(transfer.saves) - failed, failed))

    def close(self) -> None:
        """Let go of the caches."""
        self._caches = ()

    def _fill(self, blocks: Sequence[int], payload: Buffer) -> None:
        stored, at = torch.frombuffer(payload, dtype=torch.uint8), 0
        for block, cache in ((block, cache) for block in blocks for cache in self._caches):
            target = cache[block]
            size = target.numel() * target.element_size()
            if block:
                target.copy_(stored[at : at + size].view(target.dtype).view(target.shape))
            at += size

    def _bytes_of(self, blocks: Sequence[int]) -> Buffer:
        parts = [cache[block].contiguous().view(-1).view(torch.uint8) for block in blocks for cache in self._caches]
        return torch.cat([part.cpu() for part in parts]).numpy().data
