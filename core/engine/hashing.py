"""Chained content hashes of KV blocks.

A block's hash covers its own tokens and, through its parent's hash, everything before it. The hash is keyed with a
random key per process, so a client cannot construct a collision; requests with different salts share nothing.
"""

from __future__ import annotations

import os
from hashlib import blake2b

import numpy as np

DIGEST_BYTES = 16


class BlockHasher:
    """Hashes full blocks of `block_size` int32 tokens."""

    def __init__(self, block_size: int, key: bytes | None = None) -> None:
        self.block_size = block_size
        self._key = os.urandom(DIGEST_BYTES) if key is None else key

    def root(self, salt: str | None) -> bytes:
        """Return the parent of a request's first block."""
        return self._digest(b"root" if salt is None else b"salt:" + salt.encode("utf-8", "surrogatepass"))

    def extend(self, hashes: list[bytes], root: bytes, tokens: np.ndarray) -> None:
        """Append the hashes of the full blocks of `tokens` that `hashes` does not hold yet."""
        size = self.block_size
        parent = hashes[-1] if hashes else root
        for start in range(len(hashes) * size, len(tokens) - size + 1, size):
            parent = self._digest(parent + tokens[start : start + size].tobytes())
            hashes.append(parent)

    def _digest(self, data: bytes) -> bytes:
        return blake2b(data, digest_size=DIGEST_BYTES, key=self._key).digest()
