"""The pool of KV blocks: reference counts, a free list in eviction order, and the prefix index.

A block is *used* (reference count > 0, held by that many block tables) or *free*. A free block may still hold cached
content; the free list is therefore also the eviction order: blocks without content come first, then the least recently
freed. Block 0 is never handed out: unused block-table entries are 0, so padding can only ever read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NULL_BLOCK = 0


class BlockPool:
    """All KV blocks of one engine. Every operation is O(1) per block.

    Args:
        num_blocks: Blocks the worker allocated, the null block included.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 2:
            raise ValueError(f"a pool needs at least 2 blocks (one is the null block), got {num_blocks}")
        self.total = num_blocks - 1
        self.free = self.total
        self._refs = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._index: dict[bytes, int] = {}
        # Intrusive ring through the free blocks; entry `num_blocks` is the sentinel between tail and head.
        self._sentinel = num_blocks
        self._next = [0, *range(2, num_blocks + 1), 1]
        self._prev = [0, num_blocks, *range(1, num_blocks)]

    @property
    def used(self) -> int:
        """Blocks that are in a block table."""
        return self.total - self.free

    def is_free(self, block: int) -> bool:
        """Whether no table holds the block (its content may still be cached)."""
        return self._refs[block] == 0

    def shared(self, block: int) -> bool:
        """Whether more than one table holds the block."""
        return self._refs[block] > 1

    def lookup(self, digest: bytes) -> int | None:
        """Return a block with this content, used or free."""
        return self._index.get(digest)

    def holds(self, block: int, digest: bytes) -> bool:
        """Whether a block is findable by this content."""
        return self._hashes[block] == digest

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks, evicting cached content in free-list order.

        Raises:
            ValueError: Fewer are free; nothing was taken.
        """
        if count > self.free:
            raise ValueError(f"{count} blocks asked, {self.free} free")
        blocks = []
        following, refs, hashes = self._next, self._refs, self._hashes
        block = following[self._sentinel]
        for _ in range(count):
            if hashes[block] is not None:
                self.forget(block)
            refs[block] = 1
            blocks.append(block)
            block = following[block]
        # What was taken is the beginning of the ring: one new link closes it behind.
        following[self._sentinel], self._prev[block] = block, self._sentinel
        self.free -= count
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """Add one reference to each block; free ones leave the free list and keep their content."""
        for block in blocks:
            if self._refs[block] == 0:
                self._unlink(block)
            self._refs[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Drop one reference of each block of a table, given in table order.

        The tail is freed first, so that of a cached sequence the end is evicted before its beginning.

        Raises:
            ValueError: A block has no reference left to drop.
        """
        refs, hashes, cached = self._refs, self._hashes, []
        for block in reversed(blocks):
            left = refs[block] - 1
            if left < 0:
                raise ValueError(f"block {block} is released twice")
            refs[block] = left
            if left:
                continue
            if hashes[block] is None:
                self._link(block, self._sentinel)
            else:
                cached.append(block)
        self._link_last(cached)

    def publish(self, blocks: Iterable[int], digests: Iterable[bytes]) -> None:
        """Make full blocks findable by their content, null blocks left out. A second of equal content stays private."""
        index, hashes = self._index, self._hashes
        for block, digest in zip(blocks, digests, strict=True):
            if block != NULL_BLOCK and digest not in index:
                index[digest] = block
                hashes[block] = digest

    def forget(self, block: int) -> None:
        """Make the block's content unfindable."""
        digest = self._hashes[block]
        if digest is not None:
            del self._index[digest]
            self._hashes[block] = None

    def forget_all(self) -> None:
        """Drop the whole prefix cache; used blocks stay where they are."""
        self._index.clear()
        self._hashes = [None] * len(self._hashes)

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Verify the pool against the block tables that exist.

        Raises:
            RuntimeError: An invariant is broken; the message states which.
        """
        counted = [0] * len(self._refs)
        for table in tables:
            for block in table:
                counted[block] += 1
        wrong = [b for b, (have, want) in enumerate(zip(self._refs, counted, strict=True)) if have != want]
        if wrong:
            raise RuntimeError(f"reference counts of blocks {wrong[:8]} differ from the block tables")
        linked = self._walk()
        if len(linked) != self.free or any(self._refs[block] for block in linked):
            raise RuntimeError(f"free list has {len(linked)} blocks, free={self.free}")
        if self.free + sum(1 for refs in self._refs if refs) != self.total:
            raise RuntimeError(f"free {self.free} + used != total {self.total}")
        if any(self._hashes[block] != digest for digest, block in self._index.items()):
            raise RuntimeError("the prefix index names a block with other content")

    def _walk(self) -> list[int]:
        blocks: list[int] = []
        block = self._next[self._sentinel]
        while block != self._sentinel and len(blocks) <= self.total:
            blocks.append(block)
            block = self._next[block]
        return blocks

    def _unlink(self, block: int) -> None:
        before, after = self._prev[block], self._next[block]
        self._next[before], self._prev[after] = after, before
        self.free -= 1

    def _link_last(self, blocks: Sequence[int]) -> None:
        """Put blocks at the end of the free list, in order."""
        following, previous, sentinel = self._next, self._prev, self._sentinel
        before = previous[sentinel]
        for block in blocks:
            following[before], previous[block] = block, before
            before = block
        following[before], previous[sentinel] = sentinel, before
        self.free += len(blocks)

    def _link(self, block: int, before: int) -> None:
        """Put a block into the free list, behind another."""
        after = self._next[before]
        self._next[before] = self._prev[after] = block
        self._prev[block], self._next[block] = before, after
        self.free += 1
