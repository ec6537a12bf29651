"""A worker whose model is arithmetic: the next token is a function of every token the KV cache holds.

It keeps tokens where a real worker keeps keys and values: in paged slots reached through block tables. A wrong table, a
stale block, a lost token or a step out of order changes the output, so the whole engine can be checked exactly, in
milliseconds and without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from core.api.participants import AllowedTokens
from core.engine.step import StepPlan, StepResult, WorkerInfo

NO_TOKEN = -1


def next_token(context: np.ndarray, vocab_size: int, allowed: Callable[[int], bool] | None = None) -> int:
    """Return the token that follows `context` (int32 ids); in place of one that is not allowed, the next that is.

    -1 if none is.
    """
    digest = blake2b(np.ascontiguousarray(context, dtype=np.int32).tobytes(), digest_size=4).digest()
    token = int.from_bytes(digest, "little") % vocab_size
    if allowed is None:
        return token
    return next((t for i in range(vocab_size) if allowed(t := (token + i) % vocab_size)), NO_TOKEN)


def generate(prompt: list[int], count: int, vocab_size: int) -> list[int]:
    """Return what any correct engine produces after `prompt`."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(np.array(tokens, np.int32), vocab_size))
    return tokens[len(prompt) :]


class ArithmeticWorker:
    """Executes step plans on paged token storage."""

    def __init__(self, num_blocks: int, block_size: int, max_rows: int, max_len: int, vocab_size: int) -> None:
        self.block_size, self.vocab_size = block_size, vocab_size
        self.cache = np.full(num_blocks * block_size, -1, np.int32)
        self.pool = np.full((max_rows, max_len + 1), -1, np.int32)
        self.tables = np.zeros((max_rows, -(-max_len // block_size)), np.int32)
        self.computed_tokens = 0
        self._allowed: dict[int, np.ndarray] = {}
        self._minima: dict[int, tuple[int, tuple[int, ...]]] = {}  # row -> shortest text, ids that are held back below

    def execute(self, plan: StepPlan, late: Mapping[str, Any] | None = None) -> StepResult:
        """Run one step, whose late parts may allow some tokens only."""
        self._allowed = {
            row: np.unpackbits(bits.view(np.uint8), bitorder="little")
            for part in (late or {}).values()
            if isinstance(part, AllowedTokens)
            for row, bits in zip(part.rows.tolist(), part.bits, strict=True)
        }
        for new in plan.new_rows:
            self.pool[new.row] = -1
            self._minima[new.row] = (len(new.prompt) + new.params.min_tokens, new.stop_ids)
            given = np.concatenate([new.prompt, new.generated])
            self.pool[new.row, : len(given)] = given
        for i, (row, start) in enumerate(zip(plan.blocks.rows, plan.blocks.starts, strict=True)):
            blocks = plan.blocks.blocks[plan.blocks.offsets[i] : plan.blocks.offsets[i + 1]]
            self.tables[row, start : start + len(blocks)] = blocks
        work = list(zip(plan.rows.tolist(), plan.starts.tolist(), plan.counts.tolist(), strict=True))
        for row, start, count in work:  # every row writes before any row reads, as in a real layer
            self.cache[self._slots(row, start, start + count)] = self.pool[row, start : start + count]
            self.computed_tokens += count
        places = np.flatnonzero(plan.samples).tolist()
        sampled = [self._sample(work[i][0], work[i][1] + work[i][2]) for i in places]
        errors = {i: "no token is left" for i, token in zip(places, sampled, strict=True) if token == NO_TOKEN}
        return StepResult(plan.number, np.array(sampled, np.int32), errors=errors)

    def _sample(self, row: int, length: int) -> int:
        shortest, stop_ids = self._minima.get(row, (0, ()))
        held, bits = stop_ids if length < shortest else (), self._allowed.get(row)
        context = self.cache[self._slots(row, 0, length)]
        token = next_token(
            context, self.vocab_size, lambda token: token not in held and (bits is None or bool(bits[token]))
        )
        self.pool[row, length] = token
        return token

    def _slots(self, row: int, start: int, stop: int) -> np.ndarray:
        positions = np.arange(start, stop)
        slots: np.ndarray = self.tables[row, positions // self.block_size] * self.block_size + (
            positions % self.block_size
        )
        return slots


class _Lazy:
    def __init__(self, work: Callable[[], StepResult]) -> None:
        self._work = work
        self._result: StepResult | None = None

    def result(self) -> StepResult:
        if self._result is None:
            self._result = self._work()
        return self._result


class ArithmeticExecutor:
    """An executor over `ArithmeticWorker` that runs a step only when its result is asked for.

    This is the latest moment any device could run it, so an engine that peeks ahead of its steps is found out.
    """

    def __init__(self, worker: ArithmeticWorker, num_blocks: int) -> None:
        self.worker, self._num_blocks = worker, num_blocks
        self.launched = 0
        self.late_parts: dict[int, Mapping[str, Any]] = {}

    def start(self) -> WorkerInfo:
        """Report the worker's size."""
        return WorkerInfo(self._num_blocks, self.worker.block_size * 4, {}, [])

    def launch(self, plan: StepPlan) -> _Lazy:
        """Queue a step."""
        self.launched += 1
        if not plan.late:
            return _Lazy(lambda: self.worker.execute(plan))
        return _Lazy(lambda: self.worker.execute(plan, self.late_parts.pop(plan.number)))

    def late(self, number: int, parts: Mapping[str, Any]) -> None:
        """Hand a step its late parts."""
        self.late_parts[number] = parts

    def call(self, method: str, *args: Any) -> Any:
        """No worker methods exist."""
        raise NotImplementedError(method)

    def healthy(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Nothing to release."""
