"""A worker whose model is arithmetic: the next token is a function of every token the KV cache holds.

It keeps tokens where a real worker keeps keys and values: in paged slots reached through block tables. A wrong table, a
stale block, a lost token or a step out of order changes the output, so the whole engine can be checked exactly, in
milliseconds and without torch.

It verifies drafts as a real one does: guesses of a given agreement stand in the token pool behind a row's last token,
run through the same slots, and are kept while they equal what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from core.api.kvspecs import KVSpec
from core.api.participants import AllowedTokens
from core.api.steps import StepPlan, StepResult, WorkerInfo

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


def generate(
    prompt: list[int], count: int, vocab_size: int, windows: Sequence[int] = (0,), *, recurrent: bool = False
) -> list[int]:
    """Return what any correct engine produces after `prompt`: the next token depends on what each cache group sees.

    Args:
        windows: How many of the last tokens each group sees; 0: all.
        recurrent: It depends on a state as well, which every token changes.
    """
    tokens = list(prompt)
    for _ in range(count):
        seen = [token for window in windows for token in tokens[-window:]]
        state = [folded(0, tokens)] if recurrent else []
        tokens.append(next_token(np.array([*seen, *state], np.int32), vocab_size))
    return tokens[len(prompt) :]


def folded(state: int, tokens: Iterable[int]) -> int:
    """Return a recurrent state behind further tokens: it depends on each of them and on their order."""
    for token in tokens:
        state = (state * 31 + token + 1) % 2**31
    return state


class ArithmeticWorker:
    """Executes step plans on paged token storage.

    Args:
        agreement: Share of the guesses that are right.
        windows: How many of the last tokens the next one depends on, by cache group; 0: all of them. Every group keeps
            the tokens in blocks of its own, marked as the group's, so that another group's block gives another token.
        snapshots: Slots for snapshots of a state that the next token depends on, too; None: it depends on none.

    Attributes:
        known: `(max_rows,)` tokens of each row: where it really stands.
        drafted, accepted: Drafts that were verified, and that were right, in total.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        max_rows: int,
        max_len: int,
        vocab_size: int,
        agreement: float = 0.0,
        windows: Sequence[int] = (0,),
        snapshots: int | None = None,
    ) -> None:
        self.snapshots = snapshots
        self.states = np.full(max_rows + (snapshots or 0), -7, np.int64)  # nobody's: a fresh row's counts as zero
        self.block_size, self.vocab_size = block_size, vocab_size
        self.known = np.zeros(max_rows, np.int32)
        self.drafted = self.accepted = 0
        self._agreement, self._random = agreement, np.random.default_rng(0)
        self.windows = windows
        self.cache = np.full(num_blocks * block_size, -1, np.int32)
        self.pool = np.full((max_rows, max_len + 1), -1, np.int32)
        self.tables = np.zeros((len(windows), max_rows, -(-max_len // block_size)), np.int32)
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
            self.known[new.row] = len(given)
        for table, update in zip(self.tables, plan.blocks, strict=True):
            for i, (row, start) in enumerate(zip(update.rows, update.starts, strict=True)):
                blocks = update.blocks[update.offsets[i] : update.offsets[i + 1]]
                table[row, start : start + len(blocks)] = blocks
        work = self._work(plan)
        if plan.states is not None:
            self._copy(plan.states.loads)
        for row, start, count in work if self.snapshots is not None else ():
            self.states[row] = folded(
                int(self.states[row]) if start else 0, self.pool[row, start : start + count].tolist()
            )
        if plan.states is not None:
            self._copy(plan.states.keeps)
        for row, start, count in work:  # every row writes before any row reads, as in a real layer
            for group in range(len(self.windows)):
                mark = group * self.vocab_size
                self.cache[self._slots(group, row, start, start + count)] = self.pool[row, start : start + count] + mark
            self.computed_tokens += count
        places = np.flatnonzero(plan.samples).tolist()
        if plan.drafts is None:
            gained = [[self._sample(work[i][0], work[i][1] + work[i][2])] for i in places]
        else:
            gained = [self._verify(*work[i], late=bool(plan.drafts[i] >= 0)) for i in places]
        errors = {i: "no token is left" for i, tokens in zip(places, gained, strict=True) if tokens[-1] == NO_TOKEN}
        counts = None if plan.drafts is None else np.array([len(tokens) for tokens in gained], np.int32)
        flat = np.array([token for tokens in gained for token in tokens], np.int32)
        return StepResult(plan.number, flat, errors=errors, counts=counts)

    def _work(self, plan: StepPlan) -> list[tuple[int, int, int]]:
        """Return row, first position and number of tokens of everything that runs."""
        work = list(zip(plan.rows.tolist(), plan.starts.tolist(), plan.counts.tolist(), strict=True))
        for i, most in enumerate(() if plan.drafts is None else plan.drafts.tolist()):
            if most >= 0:
                row, start, count = work[i]
                known = int(self.known[row])
                if not known - 1 <= start or count != most + 1:
                    raise ValueError(f"row {row} has {known} tokens and is to run {count} from position {start} on")
                work[i] = (row, known - 1, 1 + self._guess(row, known, most))
        return work

    def _copy(self, copies: np.ndarray) -> None:
        for source, target in copies.tolist():
            self.states[target] = self.states[source]

    def _guess(self, row: int, known: int, most: int) -> int:
        """Write up to `most` guesses behind a row's tokens; return how many."""
        count = int(self._random.integers(0, most + 1)) if self._random.random() < 0.2 else most
        text = self.pool[row, :known].tolist()
        for _ in range(count):
            right = self._random.random() < self._agreement
            seen = [token for window in self.windows for token in text[-window:]]
            token = next_token(np.array(seen, np.int32), self.vocab_size)
            text.append((token + (not right)) % self.vocab_size)
        self.pool[row, known : known + count] = text[known:]
        return count

    def _verify(self, row: int, start: int, count: int, *, late: bool) -> list[int]:
        """Sample behind each of the last tokens for as long as the draft that follows is what was sampled."""
        drafts = self.pool[row, start + 1 : start + count].tolist() if late else []
        first = start + count - len(drafts)
        tokens = [self._sample(row, first)]
        for i, draft in enumerate(drafts if row not in self._allowed else ()):  # a mask is for one position
            if tokens[-1] != draft:
                break
            tokens.append(self._sample(row, first + i + 1))
        if tokens[-1] == NO_TOKEN and len(tokens) > 1:
            tokens.pop()  # the next step fails there; what came before it is kept
        self.known[row] = first + len(tokens)
        self.drafted, self.accepted = self.drafted + len(drafts), self.accepted + len(tokens) - 1
        return tokens

    def _sample(self, row: int, length: int) -> int:
        shortest, stop_ids = self._minima.get(row, (0, ()))
        held, bits = stop_ids if length < shortest else (), self._allowed.get(row)
        seen = [self._seen(group, row, length) for group in range(len(self.windows))]
        if self.snapshots is not None:
            seen.append(self.states[row : row + 1].astype(np.int32))
        token = next_token(
            np.concatenate(seen),
            self.vocab_size,
            lambda token: token not in held and (bits is None or bool(bits[token])),
        )
        self.pool[row, length] = token
        return token

    def _seen(self, group: int, row: int, length: int) -> np.ndarray:
        """Return the tokens that a group sees of a row's first `length`."""
        window = self.windows[group]
        slots = self._slots(group, row, max(0, length - window) if window else 0, length)
        seen: np.ndarray = self.cache[slots] - group * self.vocab_size
        return seen

    def _slots(self, group: int, row: int, start: int, stop: int) -> np.ndarray:
        positions = np.arange(start, stop)
        slots: np.ndarray = self.tables[group, row, positions // self.block_size] * self.block_size + (
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
        """Report the worker's size and cache groups."""
        groups = tuple(KVSpec("sliding", window) if window else KVSpec() for window in self.worker.windows)
        snapshots = self.worker.snapshots or 0
        return WorkerInfo(self._num_blocks, self.worker.block_size * 4, {}, [], groups, snapshots=snapshots)

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
