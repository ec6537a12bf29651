"""The prefix cache: which blocks of a request are already somewhere in the pool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np

from core.api.participants import StagedRequest
from core.engine.blocks import BlockPool
from core.engine.hashing import BlockHasher
from core.engine.request import Request


class PrefixCache:
    """Finds and publishes full blocks by their chained content hash.

    Attributes:
        queries, hits: Tokens looked up, and those found, over all first admissions.
    """

    def __init__(self, pool: BlockPool, hasher: BlockHasher, *, enabled: bool) -> None:
        self.pool, self.hasher, self.enabled = pool, hasher, enabled
        self.queries = 0
        self.hits = 0

    def extend(self, request: Request, tokens: np.ndarray) -> None:
        """Bring `request.hashes` up to the full blocks of its known `tokens`."""
        if self.enabled:
            self.hasher.extend(request.hashes, request.hash_root, tokens, request.extras)

    def complete(self, completed: Iterable[tuple[Request, int, int]], tokens: bytes, width: int) -> None:
        """Make the next block of several requests findable.

        Args:
            completed: Requests, their blocks, and which of the `width` bytes long pieces of `tokens` each holds.
        """
        digest, publish = self.hasher.digest, self.pool.publish
        for request, block, piece in completed:
            hashes, own = request.hashes, tokens[piece * width : (piece + 1) * width]
            if request.extras:
                own += request.extras.get(len(hashes), b"")
            found = digest((hashes[-1] if hashes else request.hash_root) + own)
            hashes.append(found)
            publish(block, found)

    def usable(self, request: Request, length: int) -> list[bytes]:
        """Return the hashes of the blocks a lookup may use: never the one with the last token of `length`.

        The last token has to be computed, since its logits are what the request waits for.
        """
        if not (self.enabled and request.reusable):
            return []
        return request.hashes[: (length - 1) // self.hasher.block_size]

    def cached_tokens(self, request: StagedRequest) -> int:
        """Return how many leading tokens of a request that waits for its first run are cached now."""
        own = cast(Request, request)
        return len(self.match(self.usable(own, own.num_given))) * self.hasher.block_size

    def match(self, hashes: list[bytes]) -> list[int]:
        """Return the blocks of the longest cached prefix."""
        blocks = []
        for digest in hashes:
            block = self.pool.lookup(digest)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def publish(self, request: Request, blocks: list[int], first: int) -> None:
        """Make the blocks at table positions `first, first + 1, ...` findable."""
        if self.enabled:
            for place, block in enumerate(blocks, first):
                self.pool.publish(block, request.hashes[place])

    def count(self, queried: int, found: int) -> None:
        """Account for one first admission."""
        self.queries += queried
        self.hits += found
