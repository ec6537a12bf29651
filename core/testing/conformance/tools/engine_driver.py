"""A real scheduler, block pool and loop over an executor, driven request by request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.api.executors import Executor
from core.api.schedulers import SchedulerPolicy
from core.engine.blocks import BlockPool
from core.engine.hashing import BlockHasher
from core.engine.loop import EngineLoop
from core.engine.messages import Add
from core.engine.prefix import PrefixCache
from core.engine.request import Request
from core.engine.rows import RowTable
from core.engine.sampling import SamplingParams
from core.engine.scheduler import Scheduler
from core.engine.step_budget import Limits


class EngineDriver:
    """An engine without a process of its own; every request is greedy and goes past any end of the text.

    Args:
        blocks: KV blocks; few of them make requests give way to each other.
        overlap: Steps that are launched ahead.

    Attributes:
        outputs: Handle -> tokens so far.
        finished: Handles, in the order in which they finished.
    """

    def __init__(
        self, executor: Executor, policy: SchedulerPolicy, limits: Limits, *, blocks: int, block_size: int, overlap: int
    ) -> None:
        self._hasher = BlockHasher(block_size)
        cache = PrefixCache(BlockPool(blocks), self._hasher, enabled=True)
        rows = RowTable(limits.max_num_seqs, limits.max_model_len, block_size)
        self.scheduler = Scheduler(limits, rows, cache, policy)
        self._loop = EngineLoop(self.scheduler, executor, overlap)
        self.outputs: dict[int, list[int]] = {}
        self.finished: list[int] = []

    @property
    def busy(self) -> bool:
        """Whether a request is unfinished."""
        return self._loop.busy

    def add(self, prompt: Sequence[int], count: int, priority: int = 0) -> int:
        """Add a request for `count` tokens and return its handle; handles count from 0."""
        handle = len(self.outputs)
        message = Add(
            handle=handle,
            prompt=np.array(prompt, "<i4").tobytes(),
            params=SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True),
            stop_ids=[],
            priority=priority,
            cache_salt=None,
        )
        self.outputs[handle] = []
        self.scheduler.add(Request(message, handle + 1, self._hasher.root()))
        return handle

    def advance(self) -> None:
        """Take one turn of the loop."""
        outputs = self._loop.advance()
        if outputs is None:
            return
        handles, tokens = np.frombuffer(outputs.handles, "<i8"), np.frombuffer(outputs.tokens, "<i4")
        for handle, token in zip(handles.tolist(), tokens.tolist(), strict=True):
            self.outputs[handle].append(token)
        self.finished += [finished.handle for finished in outputs.finished]
