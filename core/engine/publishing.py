"""Making complete columns of blocks findable, and offering them to participants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from core.api.participants import BlockRef
from core.engine.participants.stages import Stages
from core.engine.prefix import PrefixCache
from core.engine.promises import Promises
from core.engine.request import Request
from core.engine.rows import RequestTable


class Publisher:
    """Publishes the columns that steps complete. Rows are those of `rows`, keys those of `cache`."""

    def __init__(self, rows: RequestTable, cache: PrefixCache, promises: Promises, stages: Stages) -> None:
        self._rows, self._cache, self._promises, self._stages = rows, cache, promises, stages

    def publish(self, rows: np.ndarray, ends: np.ndarray) -> None:
        """Publish columns that a step, computing `rows` up to `ends`, completes with tokens whose ids are known.

        They may be shared at once, even by rows admitted to the same step: a later step runs after this one, and
        within a step every layer writes all keys and values before any row attends.
        """
        table = self._rows
        full = np.minimum(ends, table.settled[rows]) // table.block_size
        due = np.flatnonzero(full > table.published[rows])
        if not len(due):
            return
        rows, full = rows[due], full[due]
        if self._cache.enabled:
            self._share(rows, table.published[rows], full)
        table.published[rows] = full

    def publish_one(self, request: Request, end: int) -> None:
        """Do what `publish` does for one request that was admitted, and may bring many columns at once."""
        table, row = self._rows, request.row
        first, full = int(table.published[row]), min(end, int(table.settled[row])) // table.block_size
        if full <= first:
            return
        if self._cache.enabled and request.reusable:
            self._share_all(request, first, full)
        table.published[row] = full

    def offer_kept(self) -> None:
        """Offer what was held back until the promised blocks that it rests on had come."""
        kept = self._promises.take_kept()
        if kept:
            self._offer(kept)

    def _share_all(self, request: Request, first: int, full: int) -> None:
        """Make the columns `first .. full - 1` of a request findable."""
        table, row = self._rows, request.row
        self._cache.extend(request, table.tokens[row, : table.settled[row]])
        tables = table.tables[:, row, first:full].tolist()
        self._cache.publish(request, tables, first)
        if self._stages.publish:
            self._tell(request, zip(*tables, strict=True), first)

    def _share(self, rows: np.ndarray, first: np.ndarray, full: np.ndarray) -> None:
        """Make the columns `first .. full - 1` of each row findable. Nearly always it is one of a decoding row."""
        table = self._rows
        tables = table.tables[:, rows, first].tolist()
        columns: list[bytes] = table.contents[rows, first].tolist()
        requests: list[Request] = []
        next_ones = []  # indices of the columns that are the next of their request
        for i, (row, begin, end) in enumerate(zip(rows.tolist(), first.tolist(), full.tolist(), strict=True)):
            request = table.requests[row]
            if request is None or not request.reusable:
                continue  # final, although nobody may share it
            if end == begin + 1 == len(request.hashes) + 1:
                requests.append(request)
                next_ones.append(i)
            else:
                self._share_all(request, begin, end)
        if len(next_ones) < len(rows):
            columns = [columns[i] for i in next_ones]
            tables = [[blocks[i] for i in next_ones] for blocks in tables]
        self._cache.complete(requests, columns, tables)
        if self._stages.publish:
            for request, blocks in zip(requests, zip(*tables, strict=True), strict=True):
                self._tell(request, [blocks], len(request.hashes) - 1)

    def _tell(self, request: Request, columns: Iterable[tuple[int, ...]], first: int) -> None:
        """Tell participants of columns whose content is final; not before what it needs has come."""
        refs = [BlockRef(first + i, request.hashes[first + i], column) for i, column in enumerate(columns)]
        if request.needs:
            self._promises.hold(request, refs)
        else:
            self._offer(refs)

    def _offer(self, refs: Sequence[BlockRef]) -> None:
        for publish in self._stages.publish:
            publish(refs)
