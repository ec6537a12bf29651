"""A real scheduler, block pool and loop over the arithmetic worker, with a policy under check."""

from __future__ import annotations

import numpy as np

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
from core.testing.arithmetic import ArithmeticExecutor, ArithmeticWorker

VOCABULARY = 97
BLOCK_SIZE = 4
LONGEST = 64


class ArithmeticEngine:
    """An engine whose outputs are known beforehand: `core.testing.arithmetic.generate`.

    Args:
        blocks: KV blocks; few of them make requests give way to each other.
        rows: Requests that may run at once.
    """

    def __init__(self, policy: SchedulerPolicy, *, blocks: int, rows: int = 6) -> None:
        pool, self._hasher = BlockPool(blocks), BlockHasher(BLOCK_SIZE)
        cache = PrefixCache(pool, self._hasher, enabled=True)
        table = RowTable(rows, LONGEST, BLOCK_SIZE)
        self.scheduler = Scheduler(Limits(rows, 24, 16, LONGEST), table, cache, policy, ())
        worker = ArithmeticWorker(blocks, BLOCK_SIZE, rows, LONGEST, VOCABULARY)
        self._loop = EngineLoop(self.scheduler, ArithmeticExecutor(worker, blocks), 1)
        self.outputs: dict[int, list[int]] = {}
        self.finished: list[int] = []

    @property
    def busy(self) -> bool:
        """Whether a request is unfinished."""
        return self._loop.busy

    def add(self, handle: int, prompt: list[int], count: int, priority: int = 0) -> None:
        """Add a request for `count` tokens."""
        params = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
        message = Add(
            handle=handle,
            prompt=np.array(prompt, "<i4").tobytes(),
            params=params,
            stop_ids=[],
            priority=priority,
            cache_salt=None,
        )
        self.outputs[handle] = []
        self.scheduler.add(Request(message, handle + 1, self._hasher.root(None)))

    def advance(self) -> None:
        """Take one turn of the loop."""
        outputs = self._loop.advance()
        if outputs is None:
            return
        handles, tokens = np.frombuffer(outputs.handles, "<i8"), np.frombuffer(outputs.tokens, "<i4")
        for handle, token in zip(handles.tolist(), tokens.tolist(), strict=True):
            self.outputs[handle].append(token)
        self.finished += [finished.handle for finished in outputs.finished]
