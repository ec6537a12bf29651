"""Engine side: which blocks are there, which to write, which to delete."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections import OrderedDict, deque
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from acme_core_blockdir.blockfile import OVERHEAD, SUFFIX, UNFINISHED, file_of, read_block
from acme_core_blockdir.messages import Report, Transfer
from acme_core_blockdir.options import BlockdirOptions
from core.api import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core.api import BlockRef

log = logging.getLogger(__name__)

CHECKED = 65536
"""Files whose contents were found right and need no second look."""


ABANDONED_SECONDS = 3600
"""An unfinished file this old belongs to a process that is gone."""


class DirectoryStore:
    """Blocks in files. The directory is the truth: several engines may use it, one after another or at once.

    A file is read and checked before its block is promised; one that is damaged is deleted. A file's key is its block's
    hash; after `reset` it is a digest that only this process can make, so that nothing from before is found here, and
    nothing is lost to the others.

    Args:
        bytes_per_block: Bytes of one block over all layers and cache groups.

    Raises:
        ConfigError: ACME-K3, the directory cannot be used; ACME-K4, the capacity holds no block.
    """

    def __init__(self, options: Mapping[str, Any], *, block_size: int, bytes_per_block: int) -> None:
        settings = BlockdirOptions.model_validate(dict(options))
        self._path, self._size = settings.path, bytes_per_block
        self._slots = int(settings.capacity) // (bytes_per_block + OVERHEAD)
        if self._slots == 0:
            raise ConfigError(
                "ACME-K4", f"blockdir: the capacity holds not one KV block ({bytes_per_block} bytes).", hint="Raise it."
            )
        self._files = _open(self._path)
        self._checked: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self._loads: list[tuple[bytes, tuple[int, ...]]] = []
        self._wanted: dict[bytes, tuple[int, ...]] = {}
        self._number = 0
        # Messages that were not reported yet: number, the files that they read, the files that they write.
        self._moving: deque[tuple[int, set[bytes], set[bytes]]] = deque()
        self._counts = dict.fromkeys(("loaded", "saved", "failed", "damaged", "evicted"), 0)
        self._private = b""

    def match(self, hashes: Sequence[bytes], local_blocks: int) -> int:
        """Count the sound blocks that follow the first `local_blocks`, up to the first gap."""
        for index in range(local_blocks, len(hashes)):
            if not self._sound(self._key(hashes[index])):
                return index - local_blocks
        return max(len(hashes) - local_blocks, 0)

    def load(self, blocks: Sequence[BlockRef]) -> None:
        """Order copies into device blocks; the files count as just used."""
        for block in blocks:
            key = self._key(block.hash)
            self._loads.append((key, block.blocks))
            self._use(key)

    def save(self, blocks: Sequence[BlockRef]) -> None:
        """Order files for the blocks that have none yet."""
        for block in blocks:
            key = self._key(block.hash)
            if self._sound(key):
                self._use(key)
            else:
                self._wanted[key] = block.blocks

    def plan_step(self) -> bytes | None:
        """Make room for the new files and return this step's copies."""
        loads, self._loads = self._loads, []
        wanted, self._wanted = self._wanted, {}
        # A step whose saves nobody reported may have failed before them; the next message calls them off.
        if not loads and not wanted and not any(writes for _, _, writes in self._moving):
            return None
        saves = list(wanted.items())[: self._slots]
        self._number += 1
        self._moving.append((self._number, {key for key, _ in loads}, {key for key, _ in saves}))
        self._make_room(len(saves))
        for key, _ in saves:
            self._use(key)
        self._counts["loaded"] += len(loads)
        return msgspec.msgpack.encode(Transfer(self._number, self._size, loads, saves))

    def observe(self, report: bytes) -> None:
        """Count what the worker side wrote."""
        done = msgspec.msgpack.decode(report, type=Report)
        while self._moving and self._moving[0][0] <= done.number:
            self._moving.popleft()
        self._counts["saved"] += done.saved
        self._counts["failed"] += done.failed

    def reset(self) -> None:
        """Forget every block, those on their way included, and keep what comes for this process alone."""
        self._private = secrets.token_bytes(16)
        self._wanted, self._loads = {}, []

    def stats(self) -> dict[str, int]:
        """Return the files known, how many there may be, and what was moved, damaged or deleted so far."""
        return {"files": len(self._files), "slots": self._slots, "private": int(bool(self._private)), **self._counts}

    def _key(self, block_hash: bytes) -> bytes:
        return blake2b(block_hash, digest_size=16, key=self._private).digest() if self._private else block_hash

    def _sound(self, key: bytes) -> bool:
        try:
            stat = file_of(self._path, key).stat()
        except OSError:
            return False
        seen = (stat.st_ino, stat.st_mtime_ns)
        if self._checked.get(key) == seen:
            return True
        if read_block(self._path, key, self._size) is None:
            log.warning("blockdir: %s is damaged; it is deleted", file_of(self._path, key))
            self._counts["damaged"] += 1
            self._delete(key)
            return False
        self._checked[key] = seen
        if len(self._checked) > CHECKED:
            self._checked.popitem(last=False)
        return True

    def _use(self, key: bytes) -> None:
        self._files[key] = None
        self._files.move_to_end(key)

    def _make_room(self, count: int) -> None:
        keep = set().union(*(reads | writes for _, reads, writes in self._moving))
        excess = len(self._files) + count - self._slots
        for key in [one for one in self._files if one not in keep][: max(excess, 0)]:
            self._delete(key)
            self._counts["evicted"] += 1

    def _delete(self, key: bytes) -> None:
        self._files.pop(key, None)
        self._checked.pop(key, None)
        try:
            file_of(self._path, key).unlink(missing_ok=True)
        except OSError as error:
            log.warning("blockdir: cannot delete a file: %s", error)


def _open(path: Path) -> OrderedDict[bytes, None]:
    """Make the directory, tidy it, and return its blocks, oldest first. Raises `ConfigError` ACME-K3."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for entry in path.glob(f"*{UNFINISHED}"):
            if entry.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                entry.unlink(missing_ok=True)
        found = [(entry.stat().st_mtime_ns, entry.name) for entry in os.scandir(path) if entry.name.endswith(SUFFIX)]
    except OSError as error:
        raise ConfigError("ACME-K3", f"blockdir: {path} cannot be used: {error.strerror}.") from error
    names = [name.removesuffix(SUFFIX) for _, name in sorted(found)]
    return OrderedDict((bytes.fromhex(name), None) for name in names if _is_hash(name))


def _is_hash(name: str) -> bool:
    return len(name) % 2 == 0 and all(char in "0123456789abcdef" for char in name)
