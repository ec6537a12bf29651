"""Which blocks give their slots to others when all slots are taken."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol

Idle = Callable[[bytes], bool]
"""Whether nothing depends on a block now."""


class Eviction(Protocol):
    """An order of the stored blocks, which are named by their hashes."""

    def evict(self, arriving: Sequence[bytes], free: int, idle: Idle) -> list[bytes]:
        """Remove blocks that make room for others, and return them.

        Args:
            arriving: Blocks to store, the head of a prefix first.
            free: How many of them have a slot without that.
            idle: Only such blocks are removed.

        Returns:
            One for each block that arrives; fewer: there is no room for the last ones.
        """

    def add(self, block_hash: bytes) -> None:
        """Take in a block that arrived and is stored from now on."""

    def touch(self, block_hash: bytes) -> None:
        """Note that a stored block was used."""

    def discard(self, block_hash: bytes) -> None:
        """Forget a block whose bytes never came."""


class LeastRecentlyUsed:
    """The block leaves that was not used for longest."""

    def __init__(self, slots: int) -> None:
        self._blocks: OrderedDict[bytes, None] = OrderedDict()

    def evict(self, arriving: Sequence[bytes], free: int, idle: Idle) -> list[bytes]:
        """Remove blocks that make room for others, and return them."""
        victims = list(islice(filter(idle, self._blocks), max(len(arriving) - free, 0)))
        for victim in victims:
            del self._blocks[victim]
        return victims

    def add(self, block_hash: bytes) -> None:
        """Take in a block that arrived and is stored from now on."""
        self._blocks[block_hash] = None

    def touch(self, block_hash: bytes) -> None:
        """Note that a stored block was used."""
        self._blocks.move_to_end(block_hash)

    def discard(self, block_hash: bytes) -> None:
        """Forget a block whose bytes never came."""
        del self._blocks[block_hash]


class AdaptiveReplacement:
    """ARC (Megiddo and Modha, FAST 2003): blocks that were used again are not displaced by those that were used once.

    Blocks used once and blocks used again are two orders. As many hashes as there are slots are remembered of blocks
    that left; one that comes back enlarges the share of the order that it left too early, and counts as used again.

    Blocks arrive by the prompt, not one by one as in the paper: those that would displace others of the same prompt are
    not stored, and remembered as if they had left.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._share = 0.0
        """Slots that blocks used once may keep."""
        self._once: OrderedDict[bytes, None] = OrderedDict()
        self._again: OrderedDict[bytes, None] = OrderedDict()
        self._left_once: OrderedDict[bytes, None] = OrderedDict()
        self._left_again: OrderedDict[bytes, None] = OrderedDict()
        self._returning: set[bytes] = set()

    def evict(self, arriving: Sequence[bytes], free: int, idle: Idle) -> list[bytes]:
        """Remove blocks that make room for others, and return them."""
        victims: list[bytes] = []
        new = 0
        for place, block_hash in enumerate(arriving):
            self._adapt(block_hash)
            if place >= free:
                victim = self._remove(block_hash, new, idle)
                if victim is None:
                    self._pass_by(arriving[place:])
                    break
                victims.append(victim)
            if self._recall(block_hash):
                self._returning.add(block_hash)
            else:
                new += 1
        self._forget()
        return victims

    def add(self, block_hash: bytes) -> None:
        """Take in a block that arrived and is stored from now on."""
        (self._again if block_hash in self._returning else self._once)[block_hash] = None
        self._returning.discard(block_hash)
        self._forget()

    def touch(self, block_hash: bytes) -> None:
        """Note that a stored block was used."""
        self.discard(block_hash)
        self._again[block_hash] = None

    def discard(self, block_hash: bytes) -> None:
        """Forget a block whose bytes never came."""
        self._once.pop(block_hash, None)
        self._again.pop(block_hash, None)

    def _adapt(self, arriving: bytes) -> None:
        once, again = len(self._left_once), len(self._left_again)
        if arriving in self._left_once:
            self._share = min(self._share + max(again / once, 1), self._slots)
        elif arriving in self._left_again:
            self._share = max(self._share - max(once / again, 1), 0)

    def _remove(self, arriving: bytes, new: int, idle: Idle) -> bytes | None:
        """Remove a block that leaves for another one; `new`: blocks used once that are on their way."""
        once = len(self._once) + new
        if once and (once > self._share or (arriving in self._left_again and once == self._share)):
            return _moved(self._once, self._left_once, idle)
        return _moved(self._again, self._left_again, idle) or _moved(self._once, self._left_once, idle)

    def _recall(self, block_hash: bytes) -> bool:
        """Whether a block is remembered; it is not any more."""
        for left in (self._left_once, self._left_again):
            if block_hash in left:
                del left[block_hash]
                return True
        return False

    def _pass_by(self, hashes: Iterable[bytes]) -> None:
        for block_hash in hashes:
            if block_hash not in self._left_again:
                self._left_once[block_hash] = None

    def _forget(self) -> None:
        while self._left_once and len(self._once) + len(self._left_once) > self._slots:
            self._left_once.popitem(last=False)
        orders = (self._once, self._again, self._left_once, self._left_again)
        while self._left_again and sum(map(len, orders)) > 2 * self._slots:
            self._left_again.popitem(last=False)


EVICTIONS: Mapping[str, Callable[[int], Eviction]] = {"lru": LeastRecentlyUsed, "arc": AdaptiveReplacement}
"""Name of the option -> what makes the order of so many slots."""


def _moved(blocks: OrderedDict[bytes, None], left: OrderedDict[bytes, None], idle: Idle) -> bytes | None:
    """Move the first idle block to those that left and return it."""
    victim = next(filter(idle, blocks), None)
    if victim is not None:
        del blocks[victim]
        left[victim] = None
    return victim
