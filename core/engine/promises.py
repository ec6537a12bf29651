"""Promises: blocks that something outside fills, between the step that orders them and that step's result.

They are found by others as soon as they are ordered, and so is what is computed on them. If one is not filled, whoever
needed it and whatever was computed on it have to be found again. That is kept here until the step's result is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from core.api.participants import BlockRef
from core.engine.blocks import BlockPool
from core.engine.request import NOTHING, Needs, Request, Status


@dataclass(slots=True)
class _Content:
    """What a block holds if all of `needs` come; `held` are computed blocks that nobody was offered yet."""

    ref: BlockRef
    needs: Needs
    held: bool


class Promises:
    """Which blocks and requests need what. Nothing is kept, and nothing costs, while no step orders a block.

    Args:
        pool: Where the blocks are findable; what turns out to be wrong is forgotten there.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._ordered: dict[int, Needs] = {}  # by the number of the step
        self._contents: dict[int, _Content] = {}  # by block
        self._needing: dict[int, Request] = {}  # by handle
        self._kept: list[BlockRef] = []

    def order(self, request: Request, number: int, refs: Sequence[BlockRef]) -> None:
        """`refs` are ordered for `request` with step `number`."""
        orders = frozenset((number, ref.block) for ref in refs)
        self._ordered[number] = self._ordered.get(number, NOTHING) | orders
        for ref in refs:
            self._contents[ref.block] = _Content(ref, frozenset({(number, ref.block)}), held=False)
        self._need(request, orders)

    def share(self, request: Request, hashes: Iterable[bytes], blocks: Iterable[int]) -> None:
        """`request` is admitted on these cached `blocks`, found by their `hashes`."""
        if not self._contents:
            return
        for digest, block in zip(hashes, blocks, strict=False):
            content = self._contents.get(block)
            if content is not None and content.ref.hash == digest:
                self._need(request, content.needs)

    def hold(self, request: Request, refs: Sequence[BlockRef]) -> None:
        """`request`, which needs promised blocks, computes these: they are not offered before those have come."""
        for ref in refs:
            self._contents[ref.block] = _Content(ref, request.needs, held=True)

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
                if self._pool.holds(block, content.ref.hash):
                    self._pool.forget(block)
                del self._contents[block]
            else:
                self._arrive(block, content, orders)
        return self._stranded(orders, missing)

    def take_kept(self) -> list[BlockRef]:
        """Return and clear the blocks that were held back, are right, and are still there."""
        kept, self._kept = self._kept, []
        return [ref for ref in kept if self._pool.holds(ref.block, ref.hash)]

    def _need(self, request: Request, needs: Needs) -> None:
        request.needs |= needs
        self._needing[request.handle] = request

    def _arrive(self, block: int, content: _Content, orders: Needs) -> None:
        content.needs -= orders
        if not content.needs:
            del self._contents[block]
            if content.held:
                self._kept.append(content.ref)

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
