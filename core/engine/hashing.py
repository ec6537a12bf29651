"""Chained content hashes of KV blocks.

A block's hash covers its own tokens and, through its parent's hash, everything before it; the root of the chain covers
what is the request's own, and the key what is the engine's. By default the key is random in every process, so a client
cannot construct a collision. A store that outlives the process needs equal hashes in every start: `stable_key` makes
the key from a secret of the user's and from everything that decides what blocks hold.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from core.api.kvspecs import KVSpec
from core.engine.block_content import KEY_BYTES, BlockContent

if TYPE_CHECKING:
    from core.config.resolved import EngineConfig
    from core.plugins.hooks import Hooks

DIGEST_BYTES = 16

NO_EXTRAS: Mapping[int, bytes] = {}


class BlockHasher:
    """Hashes full blocks of `block_size` int32 tokens."""

    def __init__(self, block_size: int, key: bytes | None = None) -> None:
        self.block_size = block_size
        self._keyed = _keyed(os.urandom(KEY_BYTES) if key is None else key)

    def root(self, **own: str | None) -> bytes:
        """Return the parent of a request's first block.

        Args:
            own: What decides the request's keys and values beside its tokens, or parts it from others (`salt`); only
                requests in which all of it is equal share blocks. None is as if it were not given.
        """
        given = {name: value for name, value in own.items() if value is not None}
        return self.digest(b"root" + json.dumps(given, sort_keys=True).encode())

    def extend(
        self, hashes: list[bytes], root: bytes, tokens: np.ndarray, extras: Mapping[int, bytes] = NO_EXTRAS
    ) -> None:
        """Append the hashes of the full blocks of `tokens` that `hashes` does not hold yet.

        Args:
            extras: Number of a block -> bytes that its hash covers beside its tokens.
        """
        size = self.block_size
        if len(tokens) < (len(hashes) + 1) * size:
            return
        parent = hashes[-1] if hashes else root
        for start in range(len(hashes) * size, len(tokens) - size + 1, size):
            parent = self.digest(parent + tokens[start : start + size].tobytes() + extras.get(start // size, b""))
            hashes.append(parent)

    def update(self, version: str, info: Mapping[str, Any]) -> None:
        """Hash as for other content from now on: the weights were updated.

        Args:
            version: Of the new weights.
            info: Where they came from. Engines that went through the same updates have equal hashes again.
        """
        key = self.digest(b"weights" + json.dumps([version, info], sort_keys=True, default=str).encode())
        self._keyed = _keyed(key)

    def digest(self, data: bytes) -> bytes:
        """Return the hash of a block: of its parent's, the bytes of its tokens, and what else it depends on."""
        state = self._keyed.copy()  # cheaper than a new one
        state.update(data)
        return state.digest()


def _keyed(key: bytes) -> blake2b:
    """Return a state from which hashes begin. The key is compressed once, here: not before something follows it."""
    return blake2b(b"\0", digest_size=DIGEST_BYTES, key=key)


def stable_key(config: EngineConfig, hooks: Hooks, groups: Sequence[KVSpec] = (KVSpec(),)) -> bytes | None:
    """Return the key that `kv.hash_seed` and the blocks' content give, None without a seed.

    Args:
        groups: What the layers of each cache group keep.

    Raises:
        PluginError: CORE-P175, the code of a plugin that decides the content cannot be read.
    """
    seed = config.options.kv.hash_seed
    return None if seed is None else BlockContent.of(config, hooks, groups).key(seed)
