"""The prefix cache: which blocks of a request are already somewhere in the pool.

A full block is found by its content and its cache group: the key is the chained hash of the column's tokens followed by
the group's suffix. What a request can start from are columns of which every group still has what the next query reads,
and behind which the model's recurrent states were kept, if it has some.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from core.api.participants import StagedRequest
from core.engine.blocks import BlockPool
from core.engine.hashing import BlockHasher
from core.engine.managers import FullManager, KVManagers
from core.engine.request import Request
from core.engine.snapshots import Snapshots


@dataclass(frozen=True, slots=True)
class Hit:
    """The longest cached prefix of a request.

    Attributes:
        columns: Its full columns.
        dead: Of each group, the leading columns that no later query reads; they need not be cached.
        tables: Of each group, the blocks of the other columns, in order.
        keys: Their keys, as `tables`.
    """

    columns: int
    dead: Sequence[int]
    tables: Sequence[list[int]]
    keys: Sequence[list[bytes]]


class PrefixCache:
    """Finds and publishes full blocks by their chained content hash.

    Args:
        managers: Those of the cache groups; None: one group that keeps everything.
        snapshots: Of the model's recurrent states; None if it has none.

    Attributes:
        suffixes: What the keys of each group end with.
        queries, hits: Tokens looked up, and those found, over all first admissions.
    """

    def __init__(
        self,
        pool: BlockPool,
        hasher: BlockHasher,
        *,
        enabled: bool,
        managers: KVManagers | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        self.pool, self.hasher, self.enabled, self.snapshots = pool, hasher, enabled, snapshots
        self._reach = (lambda hashes, columns: columns) if snapshots is None else snapshots.reach
        self.managers = managers or KVManagers([FullManager((), hasher.block_size)], hasher.block_size)
        # The first group has none: where it is the only one, keys are the hashes themselves.
        self.suffixes = [b"", *(group.to_bytes(2, "little") for group in range(1, self.managers.groups))]
        freeing = {group for _, groups in self.managers.freeing for group in groups.tolist()}
        self._kept = [suffix for group, suffix in enumerate(self.suffixes) if group not in freeing]
        nothing: list[list[int]] = [[] for _ in self.suffixes]
        self._miss = Hit(0, [0] * len(nothing), nothing, [[] for _ in nothing])
        self.queries = 0
        self.hits = 0

    def extend(self, request: Request, tokens: np.ndarray) -> None:
        """Bring `request.hashes` up to the full blocks of its known `tokens`."""
        if self.enabled:
            self.hasher.extend(request.hashes, request.hash_root, tokens, request.extras)

    def complete(self, requests: Sequence[Request], columns: Sequence[bytes], tables: Sequence[Iterable[int]]) -> None:
        """Make the next column of several requests findable.

        Args:
            columns: The tokens of each, as bytes.
            tables: Of each group, the blocks of these columns.
        """
        digest, found = self.hasher.digest, []
        for request, content in zip(requests, columns, strict=True):
            hashes = request.hashes
            if request.extras:
                content += request.extras.get(len(hashes), b"")
            hashed = digest((hashes[-1] if hashes else request.hash_root) + content)
            hashes.append(hashed)
            found.append(hashed)
        for blocks, suffix in zip(tables, self.suffixes, strict=True):
            self.pool.publish(blocks, keys_of(found, suffix))

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
        return self.match(self.usable(own, own.num_given)).columns * self.hasher.block_size

    def match(self, hashes: list[bytes]) -> Hit:
        """Return the longest cached prefix of the columns with these hashes."""
        found = [self._leading(keys_of(hashes, suffix)) for suffix in self._kept]
        columns = self._reach(hashes, min([len(blocks) for blocks in found], default=len(hashes)))
        if not columns:
            return self._miss
        if not self.managers.frees:
            keys = [keys_of(hashes[:columns], suffix) for suffix in self._kept]
            return Hit(columns, [0] * len(found), [blocks[:columns] for blocks in found], keys)
        dead = self.managers.dead_columns(columns)
        changed = True
        while changed:  # a shorter prefix needs other columns of every group
            before = columns
            for _, groups in self.managers.freeing:
                of_group = dead[groups[0]].tolist()
                for group in groups.tolist():
                    columns = self._recent(hashes, self.suffixes[group], of_group, columns)
            columns = self._reach(hashes, columns)
            changed = columns < before
        return self._hit(hashes[:columns], dead[:, columns].tolist())

    def forget(self, request: Request, blocks: Iterable[int]) -> None:
        """Make what a request has computed unfindable, in these blocks of its table."""
        for block in blocks:
            self.pool.forget(block)
        if self.snapshots is not None:
            self.snapshots.forget(request.hashes)

    def forget_all(self) -> None:
        """Drop all cached content; requests keep what they hold."""
        self.pool.forget_all()
        if self.snapshots is not None:
            self.snapshots.forget_all()

    def publish(self, request: Request, tables: Sequence[Sequence[int]], first: int) -> None:
        """Make the columns `first, first + 1, ...` of each group's blocks findable; null blocks are left out."""
        if not self.enabled:
            return
        for blocks, suffix in zip(tables, self.suffixes, strict=True):
            self.pool.publish(blocks, keys_of(request.hashes[first : first + len(blocks)], suffix))

    def _leading(self, keys: Sequence[bytes]) -> list[int]:
        """Return the blocks of the keys before the first that is not found."""
        blocks = []
        for key in keys:
            block = self.pool.lookup(key)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def _recent(self, hashes: Sequence[bytes], suffix: bytes, dead: Sequence[int], columns: int) -> int:
        """Return the largest number of columns, at most `columns`, of which a group has those that are not dead."""
        place = columns - 1
        while place >= dead[columns]:
            if self.pool.lookup(hashes[place] + suffix) is None:
                columns = place
            place -= 1
        return columns

    def _hit(self, hashes: list[bytes], dead: Sequence[int]) -> Hit:
        keys = [keys_of(hashes[first:], suffix) for first, suffix in zip(dead, self.suffixes, strict=True)]
        tables = [[block for key in of_group if (block := self.pool.lookup(key)) is not None] for of_group in keys]
        return Hit(len(hashes), dead, tables, keys)

    def count(self, queried: int, found: int) -> None:
        """Account for one first admission."""
        self.queries += queried
        self.hits += found


def keys_of(hashes: list[bytes], suffix: bytes) -> list[bytes]:
    """Return the keys under which a group's blocks with these hashes are found."""
    return [digest + suffix for digest in hashes] if suffix else hashes
