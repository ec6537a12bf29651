"""Chained content hashes of KV blocks.

A block's hash covers its own tokens and, through its parent's hash, everything before it. The hash is keyed with a
random key per process, so a client cannot construct a collision; requests with different salts share nothing. A store
that outlives the process needs equal hashes in every start: `stable_key` makes the key from a secret of the user's.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from core.config.resolved import EngineConfig

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
        if len(tokens) < (len(hashes) + 1) * size:
            return
        parent = hashes[-1] if hashes else root
        for start in range(len(hashes) * size, len(tokens) - size + 1, size):
            parent = self._digest(parent + tokens[start : start + size].tobytes())
            hashes.append(parent)

    def append(self, hashes: list[bytes], root: bytes, tokens: bytes) -> bytes:
        """Append the hash of the block that follows, given its tokens as they lie in memory, and return it."""
        parent = hashes[-1] if hashes else root
        digest = blake2b(parent + tokens, digest_size=DIGEST_BYTES, key=self._key).digest()
        hashes.append(digest)
        return digest

    def _digest(self, data: bytes) -> bytes:
        return blake2b(data, digest_size=DIGEST_BYTES, key=self._key).digest()


def stable_key(config: EngineConfig) -> bytes | None:
    """Return the key that `kv.hash_seed` gives, None without a seed.

    It covers everything that decides what a block of these tokens holds, and how: the checkpoint with the user's
    changes of its configuration, dtypes, the context where rotary embeddings depend on it, and the plugins that compute
    and lay out keys and values. Blocks of another model are never found under the same hash.
    """
    seed = config.options.kv.hash_seed
    if seed is None:
        return None
    digest = blake2b(digest_size=DIGEST_BYTES, key=blake2b(seed.encode("utf-8", "surrogatepass")).digest())
    digest.update(config.checkpoint.model_dump_json().encode())
    digest.update(repr((config.dtype, config.kv_dtype, config.block_size, _stored(Path(config.files.path)))).encode())
    if config.shape.context_bound:
        digest.update(f"context {config.max_model_len}".encode())
    for group in _SHAPE_BLOCKS:
        for plugin in config.plan.of(group):
            digest.update(plugin.model_dump_json().encode())
    return digest.digest()


_SHAPE_BLOCKS = ("core.platforms", "core.models", "core.quantization", "core.attention_backends")


def _stored(path: Path) -> list[tuple[str, int, int]]:
    """Return name, size and time of change of a checkpoint's files: new weights in the old place are new weights."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
