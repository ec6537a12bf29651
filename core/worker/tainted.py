"""Blocks that failed rows may have left with numbers that are not finite."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from core.api.steps import BlockUpdate, StepPlan
from core.worker.rows import scattered


class TaintedBlocks:
    """Cleans a failed row's blocks when another row is about to write them.

    Attention masks places that are not written yet, but zero times infinity is not zero. A block that is handed on with
    its content (a cached prefix) stays as it is: its reader must fail too, rather than read numbers nobody computed.

    Args:
        caches: The KV caches, `(num_blocks, ...)`, whichever layers share them.
    """

    def __init__(self, caches: Sequence[Tensor], block_size: int) -> None:
        self._caches = caches
        self._block_size = block_size
        self._tainted = np.zeros(len(caches[0]) if caches else 0, dtype=bool)
        self._any = False
        self._marked: deque[np.ndarray] = deque()  # any thread may append

    def mark(self, blocks: np.ndarray) -> None:
        """Remember the blocks of a failed row. May be called beside a step, by whoever waited for its result."""
        if self._caches:
            self._marked.append(blocks)

    def empty(self, blocks: Sequence[int]) -> None:
        """Fill blocks with zeros: whoever was to fill them may have left anything, and this step reads them."""
        self._take_marked()
        for cache in self._caches:
            cache[torch.tensor(blocks, device=cache.device)] = 0
        if self._caches:
            self._tainted[blocks] = False

    def clean(self, plan: StepPlan) -> None:
        """Clean the tainted blocks that this plan gives out to be written. Costs nothing while no row has failed."""
        if self._marked:
            self._take_marked()
        if not self._any:
            return
        for update in plan.blocks:
            if len(update.blocks):
                self._clean(plan, update)
        self._any = bool(self._tainted.any())

    def _clean(self, plan: StepPlan, update: BlockUpdate) -> None:
        rows, columns = scattered(update)
        computed = np.zeros(int(max(rows.max(), plan.rows.max(initial=0))) + 1, dtype=np.int64)
        computed[plan.rows] = plan.starts
        fresh = update.blocks[columns * self._block_size >= computed[rows]]
        dirty = fresh[self._tainted[fresh]].astype(np.int64)
        for cache in self._caches:
            places = torch.from_numpy(dirty).to(cache.device)
            cache[places] = cache[places].nan_to_num_(0.0, 0.0, 0.0)
        self._tainted[dirty] = False

    def _take_marked(self) -> None:
        while self._marked:
            self._tainted[self._marked.popleft()] = True
            self._any = True
