"""Promises: blocks that something outside fills, between the step that orders them and that step's result.

They are found by others as soon as they are ordered, and so is what is computed on them. If one is not filled, whoever
needed it and whatever was computed on it have to be found again. That is kept here until the step's result is known.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core.api.participants import BlockRef
from core.engine.blocks import NULL_BLOCK, BlockPool
from core.engine.prefix import Hit
from core.engine.request import NOTHING, Needs, Request, Status


@dataclass(slots=True)
class _Content:
    """A block that is findable by `key` and right if all of `needs` come.

    Attributes:
        held: The computed column that is offered once this block is right; only one of its blocks names it.
    """

    key: bytes
    needs: Needs
    held: BlockRef | None = None


class Promises:
    """Which blocks and requests need what. Nothing is kept, and nothing costs, while no step orders a block.

    Args:
        pool: Where the blocks are findable; what turns out to be wrong is forgotten there.
        suffixes: Those of the prefix cache's keys, one per cache group.
    """

    def __init__(self, pool: BlockPool, suffixes: Sequence[bytes] = (b"",)) -> None:
        self._pool = pool
        self._suffixes = suffixes
        self._ordered: dict[int, Needs] = {}  # by the number of the step
        self._contents: dict[int, _Content] = {}  # by block
        self._needing: dict[int, Request] = {}  # by handle
        self._kept: list[BlockRef] = []

    def order(self, request: Request, number: int, refs: Sequence[BlockRef]) -> None:
        """`refs` are ordered for `request` with step `number`."""
        orders = frozenset((number, block) for ref in refs for block in ref.held)
        self._ordered[number] = self._ordered.get(number, NOTHING) | orders
        for ref in refs:
            for block, key in self._keyed(ref):
                self._contents[block] = _Content(key, frozenset({(number, block)}))
        self._need(request, orders)

    def share(self, request: Request, hit: Hit) -> None:
        """`request` is admitted on the cached blocks of `hit`."""
        if not self._contents:
            return
        for keys, blocks in zip(hit.keys, hit.tables, strict=True):
            for key, block in zip(keys, blocks, strict=True):
                content = self._contents.get(block)
                if content is not None and content.key == key:
                    self._need(request, content.needs)

    def hold(self, request: Request, refs: Sequence[BlockRef]) -> None:
        """`request`, which needs promised blocks, computes these: they are not offered before those have come."""
        for ref in refs:
            offered: BlockRef | None = ref
            for block, key in self._keyed(ref):
                self._contents[block] = _Content(key, request.needs, offered)
                offered = None

    def settle(self, number: int, lost: Collection[int] | None) -> list[Request]:
        """The result of step `number` is known; return the requests that needed a block that did not come.

        What was computed on such blocks is not found any more.

        Args:
            lost: Ordered blocks of that step that were not filled; None: none was.
        """
        orders = self._ordered.pop(number, None)
        if orders is None:
            return []
        missing = orders if lost is None else frozenset(one for one in orders if one[1] in lost)
        for block, content in list(self._contents.items()):
            if content.needs & missing:
                if self._pool.holds(block, content.key):
                    self._pool.forget(block)
                del self._contents[block]
            else:
                self._arrive(block, content, orders)
        return self._stranded(orders, missing)

    def take_kept(self) -> list[BlockRef]:
        """Return and clear the columns that were held back, are right, and are still there in all groups."""
        kept, self._kept = self._kept, []
        return [ref for ref in kept if all(self._pool.holds(block, key) for block, key in self._keyed(ref))]

    def _keyed(self, ref: BlockRef) -> list[tuple[int, bytes]]:
        """Return the blocks of a column that are not null, each with its key."""
        found = zip(ref.blocks, self._suffixes, strict=True)
        return [(block, ref.hash + suffix) for block, suffix in found if block != NULL_BLOCK]

    def _need(self, request: Request, needs: Needs) -> None:
        request.needs |= needs
        self._needing[request.handle] = request

    def _arrive(self, block: int, content: _Content, orders: Needs) -> None:
        content.needs -= orders
        if not content.needs:
            del self._contents[block]
            if content.held is not None:
                self._kept.append(content.held)

    def _stranded(self, orders: Needs, missing: Needs) -> list[Request]:
        """Return the requests that needed what is missing; of the others, forget what they needed of these orders."""
        stranded = []
        for handle, request in list(self._needing.items()):
            if request.status is Status.FINISHED:
                del self._needing[handle]
                continue
            if request.needs & missing:
                stranded.append(request)
                request.needs = NOTHING
            request.needs -= orders
            if not request.needs:
                del self._needing[handle]
        return stranded
