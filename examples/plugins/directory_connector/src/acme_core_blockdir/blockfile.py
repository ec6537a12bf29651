"""One block in one file: mark, digest, bytes. Torch-free.

A file appears under its name complete or not at all, and is believed only if its length and digest are right. The
digest covers the key too, so that a file under a wrong name is no block.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

MARK = b"ACMEKV01"
_DIGEST = 16
OVERHEAD = len(MARK) + _DIGEST
"""Bytes of a file besides the block's own."""

SUFFIX = ".kv"
UNFINISHED = ".tmp"

Buffer: TypeAlias = bytes | bytearray | memoryview


def file_of(directory: Path, key: bytes) -> Path:
    """Return where the block of this key is, or would be."""
    return directory / f"{key.hex()}{SUFFIX}"


def write_block(directory: Path, key: bytes, payload: Buffer) -> None:
    """Store a block. Raises `OSError`."""
    unfinished = directory / f"{secrets.token_hex(8)}{UNFINISHED}"
    try:
        with unfinished.open("xb") as file:
            file.write(MARK + _digest(key, payload))
            file.write(payload)
        os.replace(unfinished, file_of(directory, key))
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def read_block(directory: Path, key: bytes, size: int) -> bytearray | None:
    """Return the `size` bytes of a block; None if there is no file, or it is not what it should be."""
    try:
        with file_of(directory, key).open("rb") as file:
            head = file.read(OVERHEAD)
            payload = bytearray(size)
            complete = file.readinto(payload) == size and not file.read(1)
    except OSError:
        return None
    return payload if complete and head == MARK + _digest(key, payload) else None


def _digest(key: bytes, payload: Buffer) -> bytes:
    digest = blake2b(key, digest_size=_DIGEST)
    digest.update(payload)
    return digest.digest()
