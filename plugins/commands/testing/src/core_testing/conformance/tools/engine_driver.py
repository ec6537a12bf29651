"""A real scheduler, block pool and loop over an executor, driven request by request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core.api.executors import Executor
from core.api.requests import Caller
from core.api.sampling_params import SamplingParams
from core.api.schedulers import SchedulerPolicy
from core.engine.blocks import BlockPool
from core.engine.hashing import BlockHasher
from core.engine.loop import EngineLoop
from core.engine.messages import Add, Outputs
from core.engine.participants.stages import Stages
from core.engine.prefix import PrefixCache
from core.engine.request import Request
from core.engine.rows import RequestTable
from core.engine.scheduler import Scheduler
from core.engine.step_budget import Limits


class EngineDriver:
    """An engine without a process of its own; every request is greedy and goes past any end of the text.

    Args:
        blocks: KV blocks; few of them make requests give way to each other.
        overlap: Steps that are launched ahead.
        stages: Participants.
        prefix: Whether requests with equal prefixes share their blocks.

    Attributes:
        outputs: Handle -> tokens so far.
        finished: Handles, in the order in which they finished.
        errors: Handle -> why it ended early.
    """

    def __init__(
        self,
        executor: Executor,
        policy: SchedulerPolicy,
        limits: Limits,
        *,
        blocks: int,
        block_size: int,
        overlap: int,
        stages: Stages | None = None,
        prefix: bool = True,
    ) -> None:
        self._hasher = BlockHasher(block_size)
        self.cache = PrefixCache(BlockPool(blocks), self._hasher, enabled=prefix)
        rows = RequestTable(limits.max_num_seqs, limits.max_model_len, block_size)
        self.scheduler = Scheduler(limits, rows, self.cache, policy, stages)
        self._loop = EngineLoop(self.scheduler, executor, overlap)
        self.outputs: dict[int, list[int]] = {}
        self.finished: list[int] = []
        self.errors: dict[int, str] = {}

    @property
    def busy(self) -> bool:
        """Whether a request is unfinished."""
        return self._loop.busy

    def add(self, prompt: Sequence[int], count: int, priority: int = 0, caller: Caller | None = None) -> int:
        """Add a request for `count` tokens and return its handle; handles count from 0. One may be refused at once."""
        handle = len(self.outputs)
        self.outputs[handle] = []
        try:
            self.scheduler.add(self.request(handle, prompt, count, priority=priority, caller=caller or Caller()))
        except ValueError as error:
            self.finished.append(handle)
            self.errors[handle] = str(error)
        return handle

    def request(self, handle: int, prompt: Sequence[int], count: int, **further: Any) -> Request:
        """Return a request that is not in line yet."""
        params = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
        text = np.array(prompt, "<i4").tobytes()
        message = Add(handle=handle, prompt=text, params=params, **further)
        return Request(message, handle + 1, self._hasher.root())

    def abort(self, handle: int) -> None:
        """End a request, unless it has ended."""
        if handle in self.scheduler.requests:
            self.scheduler.finish(self.scheduler.requests[handle])
            self.finished.append(handle)
            self.errors[handle] = "aborted"

    def forget(self) -> None:
        """Settle what is in flight and compute everything anew, as after an update of the weights."""
        for outputs in self._loop.drain():
            self._take(outputs)
        self.scheduler.restart_running()
        self.scheduler.forget_cache()

    def advance(self) -> None:
        """Take one turn of the loop."""
        outputs = self._loop.advance()
        if outputs is not None:
            self._take(outputs)

    def _take(self, outputs: Outputs) -> None:
        handles, tokens = np.frombuffer(outputs.handles, "<i8"), np.frombuffer(outputs.tokens, "<i4")
        for handle, token in zip(handles.tolist(), tokens.tolist(), strict=True):
            self.outputs[handle].append(token)
        self.finished += [finished.handle for finished in outputs.finished]
        self.errors.update((one.handle, one.error) for one in outputs.finished if one.error is not None)
