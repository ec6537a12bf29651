"""The scheduler: in every step, computed tokens chase known tokens under a token budget.

There are no prefill and decode phases. A new prompt is a row whose computed tokens lag far behind, a decoding request
one that lags by a single token, a prefix hit one that starts ahead, a preempted one that starts over. The arrays of all
running rows are handled at once; Python loops only run over rows that need something special in this step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from core.api.kvspecs import KVManager
from core.api.participants import BlockRef
from core.api.schedulers import SchedulerPolicy, SchedulerState
from core.api.steps import StepPlan
from core.api.tasks import Task
from core.engine.blocks import NULL_BLOCK
from core.engine.drafting import drafts_wanted, undrafted
from core.engine.latency import Allowance, LatencyTarget
from core.engine.participants.stages import Stages
from core.engine.plan_builder import PlanBuilder
from core.engine.prefix import Hit, PrefixCache
from core.engine.promises import Promises
from core.engine.publishing import Publisher
from core.engine.request import Request, Status
from core.engine.rows import RequestTable
from core.engine.step_budget import Limits, shared_out
from core.engine.tasks.generate import Generate
from core.engine.waiting import WaitingQueue

Place = Callable[[Request, Sequence[BlockRef]], bool]


@dataclass(slots=True)
class Step:
    """A launched plan and what is needed to settle it.

    Attributes:
        rows: `(n,)` intp, the plan's rows.
        epochs: `(n,)` the epoch that each row had when it was scheduled.
    """

    plan: StepPlan
    rows: np.ndarray
    epochs: np.ndarray


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a waiting request was refused; `param` is the field at fault, if it is the client's mistake."""

    handle: int
    error: str
    param: str | None = None


class Scheduler:
    """Owns the waiting queue, the running rows and their KV blocks.

    Attributes:
        task: What requests are run for.
        preemptions: Requests that gave their blocks back, in total.
        blocks_freed_early: Blocks that running requests gave back because nothing reads them any more, in total.
        first_scheduled: Requests that ran for the first time since the list was last taken.
        refused: Requests that a participant refused since the list was last taken, and why.
        spread: Somebody waits for every token: prompts that come together are spread over a few steps, where the
            budget is soft, and `latency` is kept to.
    """

    def __init__(
        self,
        limits: Limits,
        rows: RequestTable,
        cache: PrefixCache,
        policy: SchedulerPolicy,
        stages: Stages | None = None,
        latency: LatencyTarget | None = None,
        task: Task | None = None,
    ) -> None:
        self.limits, self.rows, self.cache, self.policy = limits, rows, cache, policy
        self.pool, self.snapshots = cache.pool, cache.snapshots
        self.stages = stages or Stages()
        self.task = task or Generate()
        self._accept, self._row_parts = self.task.accept, self.task.row_parts
        self._whole_prompts = self.task.whole_prompts
        self._promises = Promises(self.pool, cache.suffixes)
        self._publisher = Publisher(rows, cache, self._promises, self.stages)
        self.waiting = WaitingQueue(policy)
        self.running: dict[int, Request] = {}  # by row, in the order of admission
        self.requests: dict[int, Request] = {}
        self.preemptions = 0
        self.blocks_freed_early = 0
        self.first_scheduled: list[Request] = []
        self.refused: list[Refusal] = []
        self.spread = False
        self._latency = latency
        self._number = 0
        self._running_rows = np.zeros(0, np.int64)  # the row of each of `running`, but for what follows
        self._left: list[int] = []
        self._came: list[int] = []
        # Some blocks stay free at admission, so that running requests can grow before anyone is preempted.
        self._headroom = max(rows.groups, self.pool.total // 100)
        self._most_blocks = cache.managers.most_blocks(rows.max_blocks, self.task.longest_chunk(limits))
        self._may_admit: Callable[[Request, SchedulerState], bool] | None = getattr(policy, "may_admit", None)
        self._chunk: Callable[[Request, int], int] | None = getattr(policy, "chunk", None)
        self._held: dict[int, Request] = {}  # by handle: held back by participants, the longest first

    # -- requests come and go ------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Put a request in line. Raises `ValueError` when it could never run."""
        request.limit = self._accept(request, self.limits.max_model_len)
        columns = -(-(request.limit - 1) // self.rows.block_size)  # the last token is never computed on
        needed = int(self._most_blocks[columns])
        if needed > self.pool.total:
            raise ValueError(f"the request may need {needed} KV blocks, the whole cache has {self.pool.total}")
        self._arrive(request)
        if request.reusable:
            self.cache.extend(request, self._known_tokens(request))
        self.requests[request.handle] = request
        self.waiting.push(request)

    def _arrive(self, request: Request) -> None:
        """Tell every participant of a new request. Who heard of one that another refuses hears of its end, too."""
        try:
            for arrive in self.stages.arrive:
                arrive(request)
        except Exception:
            for finish in self.stages.finish:
                finish(request)
            raise

    def finish(self, request: Request) -> None:
        """End a request, wherever it stands; its blocks and row are free at once."""
        if request.status is Status.RUNNING:
            self._leave(request)
        else:
            self.waiting.discard(request)
        request.status = Status.FINISHED
        self._not_held(request)
        del self.requests[request.handle]
        if request.row >= 0:
            self.pool.release(self.rows.clear_blocks(request.row))
            self.rows.retire(request)
        for finish in self.stages.finish:
            finish(request)

    def preempt(self, request: Request) -> None:
        """Take a running request's blocks; it keeps its row and tokens and will be computed again."""
        self._put_back(request)
        request.preemptions += 1
        self.preemptions += 1

    def settle_loads(self, number: int, lost: Collection[int] | None) -> None:
        """Step `number` is done. Whoever needed a block that it was to fill and did not is computed again.

        Args:
            lost: Those blocks; None: all that were ordered with it.
        """
        for request in self._promises.settle(number, lost):
            self._strand(request)

    def _strand(self, request: Request) -> None:
        """Compute a request again from what is known to be right; what is in flight for it is dropped."""
        if request.status is Status.RUNNING:
            self._put_back(request)
        request.generated = self.rows.rewind(request.row)
        request.stranded = request.retold = True

    def _put_back(self, request: Request) -> None:
        """Take a running request's blocks and put it in line; it keeps its row and tokens."""
        self._leave(request)
        self.pool.release(self.rows.clear_blocks(request.row))
        request.status = Status.WAITING
        request.num_computed = 0
        self.waiting.push(request)
        for leave in self.stages.leave:
            leave(request)

    def sharing_since(self, number: int) -> list[Request]:
        """Return the admitted requests that took blocks of the prefix cache in a step after `number`."""
        return [request for request in self.requests.values() if request.shared_in > number]

    def restart_running(self) -> None:
        """Preempt everything that runs; the tokens stay, their KV is computed anew. Nothing may be in flight."""
        for request in list(self.running.values()):
            self.preempt(request)

    def rehash(self, root: Callable[[Request], bytes]) -> None:
        """Hash the blocks of every request anew: what is computed from now on has other content. Nothing may run."""
        for request in self.requests.values():
            request.hash_root = root(request)
            request.hashes.clear()
            if request.reusable:
                self.cache.extend(request, self._known_tokens(request))

    def forget_cache(self) -> None:
        """Drop all cached content, on the device and in every participant. Running requests keep their blocks."""
        self.cache.forget_all()
        for reset in self.stages.reset:
            reset()

    def _known_tokens(self, request: Request) -> np.ndarray:
        """Return the ids of a request's tokens as far as the engine has seen them."""
        if request.row < 0:
            return np.concatenate([request.prompt, request.generated])
        return self.rows.tokens[request.row, : self.rows.settled[request.row]]

    def _leave(self, request: Request) -> None:
        del self.running[request.row]
        if request.row in self._came:
            self._came.remove(request.row)
        else:
            self._left.append(request.row)
        if self.snapshots is not None:
            self.snapshots.leave(request.row)

    def _current_rows(self) -> np.ndarray:
        """Return the rows of `running`; the array is made anew once a step, however many came and left."""
        if self._left or self._came:
            left = np.zeros(self.rows.capacity, bool)
            left[self._left] = True
            stay = self._running_rows[~left[self._running_rows]]
            self._running_rows = np.concatenate([stay, np.array(self._came, np.int64)])
            self._left.clear()
            self._came.clear()
        return self._running_rows

    @property
    def has_work(self) -> bool:
        """Whether a step could be scheduled now or once steps in flight have settled."""
        return bool(self.running or len(self.waiting)) or self._pending()

    @property
    def longest(self) -> int:
        """Tokens of the longest request whose blocks the pool could ever hold."""
        return (int(np.searchsorted(self._most_blocks, self.pool.total, side="right")) - 1) * self.rows.block_size

    @property
    def latency(self) -> LatencyTarget | None:
        """Latency target that keeps steps with decoding rows short, if anybody waits for their end."""
        return self._latency if self.spread else None

    # -- one step ------------------------------------------------------------------------------------------------

    def schedule(self) -> Step | None:
        """Choose the next step's work and account for it as done; None when nothing can run.

        Counters advance at once, so that a further step can be scheduled before this one's results exist.
        """
        builder = PlanBuilder(self.limits.max_num_batched_tokens, self.rows.groups)
        builder.drafting = bool(self.stages.drafts)
        preempted = self._schedule_running(builder)
        if not preempted:
            self._admit_waiting(builder)
        return None if builder.empty and not self._pending() else self._seal(builder)

    def _pending(self) -> bool:
        """Whether a participant needs a step, even one without rows."""
        return any(pending() for pending in self.stages.pending)

    def _schedule_running(self, builder: PlanBuilder) -> bool:
        """Give running rows their tokens, decodes before prompts; return whether anyone was preempted."""
        if not self.running:
            return False
        rows, counts = self._running_demand(builder)
        for manager, groups in self.cache.managers.freeing:
            self._drop_dead(builder, manager, groups, rows)
        growth = self._growth(rows, counts)
        room = self.pool.free // self.rows.groups
        if builder.drafting and int(growth.sum()) > room:
            counts = undrafted(self.rows, rows, counts)  # nobody gives way to drafts
            growth = self._growth(rows, counts)
        if int(growth.sum()) <= room:
            self._grow(builder, rows, growth)
            builder.add(rows, counts)
            return False
        return self._schedule_scarce(builder, rows.tolist(), counts.tolist())

    def _running_demand(self, builder: PlanBuilder) -> tuple[np.ndarray, np.ndarray]:
        """Return rows that have something to compute and how many tokens each gets, within the builder's budget."""
        table = self.rows
        rows = self._current_rows()
        known, computed = table.known[rows], table.computed[rows]
        need = np.minimum(known - computed, self.limits.max_chunk)
        need[known >= table.limit[rows]] = 0  # its last token is being sampled already
        if self.limits.soft_budget:
            builder.budget += int(np.count_nonzero(need == 1))
        builder.allowance = self._allowance(computed, need)
        if builder.allowance is not None:
            self._shorten(rows, computed, need, builder.allowance)
        if self._chunk is not None:
            self._cut(rows, need, builder.budget, self._chunk)
        prompts = need > 1
        if builder.drafting:
            need = need + self._drafts(builder, rows, need)
        if len(rows) > builder.budget or prompts.any():
            order = np.argsort(prompts, kind="stable")
            rows, need = rows[order], need[order]
            need = shared_out(need, builder.budget, self.limits.slack)
            if self.snapshots is not None:
                need = self.snapshots.cut(table.computed[rows], need)
            builder.prompts = int(need[(need > 1) & prompts[order]].sum())
        if need.all():
            return rows, need
        some = need > 0
        return rows[some], need[some]

    def _drafts(self, builder: PlanBuilder, rows: np.ndarray, need: np.ndarray) -> np.ndarray:
        """Return how many drafts each row may run behind the `need` tokens that it runs in any case.

        They come on top of a soft budget, as decoding rows do. A hard one has room for them when
        every decoding row has its token; prompts that wait keep half of that room.
        """
        drafts = drafts_wanted(self.stages.drafts, self.rows, rows, need, self.limits.max_chunk)
        if self.limits.soft_budget:
            builder.budget += int(drafts.sum())
            return drafts
        room = max(0, builder.budget - int(np.count_nonzero(need == 1)))
        if len(self.waiting) or (need > 1).any():
            room //= 2
        return shared_out(drafts, room, 0)

    def _allowance(self, computed: np.ndarray, need: np.ndarray) -> Allowance | None:
        """Return what prompts may take of this step, if there are any and somebody is being answered."""
        latency = self.latency
        if latency is None or not (len(self.waiting) or (need > 1).any()):
            return None
        contexts = computed[need == 1]
        return latency.allowance(len(contexts), int(contexts.sum())) if len(contexts) else None

    def _shorten(self, rows: np.ndarray, computed: np.ndarray, need: np.ndarray, allowance: Allowance) -> None:
        """Shorten the prompts' chunks, in place, to what the allowance holds for one after the other."""
        for i in np.flatnonzero(need > 1).tolist():
            request = self.rows.requests[int(rows[i])]
            if request is not None:
                start, scored = int(computed[i]), request.scored
                need[i] = count = allowance.fits(start, int(need[i]), scored=scored)
                allowance.spend(start, count, scored=scored)

    def _cut(self, rows: np.ndarray, need: np.ndarray, budget: int, chunk: Callable[[Request, int], int]) -> None:
        """Let the policy shorten the prompts' chunks, in place; decoding rows are not asked for."""
        for i in np.flatnonzero(need > 1).tolist():
            request = self.rows.requests[int(rows[i])]
            if request is not None:
                request.num_computed = int(self.rows.computed[rows[i]])
                need[i] = _clamped(chunk(request, min(int(need[i]), budget)), int(need[i]))

    def _drop_dead(self, builder: PlanBuilder, manager: KVManager, groups: np.ndarray, rows: np.ndarray) -> None:
        """Give back blocks of `groups` that no later query sees. Steps in flight run before whoever gets them writes.

        Only of `rows` that this step runs: the worker must learn of it before anybody else gets the blocks.
        """
        table = self.rows
        # What is not published yet will be, from the row's own table.
        dead = np.minimum(manager.dead_blocks(table.computed[rows] - table.slack[rows]), table.published[rows])
        first = table.dead[groups[0], rows]  # groups of one manager drop the same columns
        due = np.flatnonzero(dead > first)
        if len(due):
            rows, first, dead = rows[due], first[due], dead[due]
            builder.drop(groups, rows, first, dead - first)
            blocks = table.drop_blocks(groups, rows, dead).T.ravel().tolist()
            self.pool.release(blocks)
            self.blocks_freed_early += len(blocks)

    def _growth(self, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return how many further columns each row needs to hold `counts` more tokens."""
        size = self.rows.block_size
        wanted = (self.rows.computed[rows] + counts + size - 1) // size
        growth: np.ndarray = np.maximum(wanted - self.rows.owned[rows], 0)
        return growth

    def _schedule_scarce(self, builder: PlanBuilder, rows: list[int], counts: list[int]) -> bool:
        """Serve rows one by one when blocks are short, preempting the policy's victims; return whether it did."""
        before = self.preemptions
        for row, count in zip(rows, counts, strict=True):
            request = self.rows.requests[row]
            if request is None or request.status is not Status.RUNNING:
                continue  # became a victim of an earlier row
            needed = int(self._growth(np.array([row]), np.array([count]))[0])
            if self._make_room(builder, request, needed * self.rows.groups):
                self._grow(builder, np.array([row]), np.array([needed]))
                builder.add(np.array([row]), np.array([count]))
        return self.preemptions > before

    def _make_room(self, builder: PlanBuilder, request: Request, needed: int) -> bool:
        """Preempt until `needed` blocks are free; False if `request` itself had to go."""
        while self.pool.free < needed:
            running = list(self.running.values())
            for candidate in running:
                candidate.num_computed = int(self.rows.computed[candidate.row])
            victim = running[self.policy.victim(running)]
            builder.remove(victim.row)
            self.preempt(victim)
            if victim is request:
                return False
        return True

    def _grow(self, builder: PlanBuilder, rows: np.ndarray, counts: np.ndarray) -> None:
        """Give each row as many further columns."""
        due = np.flatnonzero(counts)
        if len(due):
            rows, counts = rows[due], counts[due]
            groups = self.rows.groups
            blocks = np.array(self.pool.allocate(groups * int(counts.sum())), np.int32).reshape(groups, -1)
            builder.grow(rows, self.rows.owned[rows], counts, blocks)
            self.rows.grow(rows, counts, blocks)

    # -- admission -----------------------------------------------------------------------------------------------

    def _admit_waiting(self, builder: PlanBuilder) -> None:
        """Admit from the head of the queue while rows, blocks and budget last.

        Nobody overtakes but those behind a request that a participant is not ready for.
        """
        self.waiting.resume()
        if self.spread and self.limits.soft_budget:
            builder.share = self.limits.share(builder.prompts + self.waiting.tokens)
        while builder.budget > 0 and len(self.running) < self.limits.max_num_seqs:
            request = self.waiting.peek()
            if request is None or not self._may_enter(request):
                return
            if self._may_admit is not None and not self._may_admit(request, self._state(builder)):
                return
            try:
                admitted = self._agreed(request)
            except ValueError as error:
                self.finish(request)
                self.refused.append(Refusal(request.handle, str(error), getattr(error, "param", None)))
                continue
            if not admitted:
                self.waiting.hold()
            elif not self._admit(builder, request):
                return

    def _agreed(self, request: Request) -> bool:
        """Ask every participant whether `request` may run. Raises `ValueError` if one refuses it."""
        if not self.stages.admit:
            return True
        answers = [admit(request) for admit in self.stages.admit]  # all of them: what they wait for comes side by side
        if all(answers):
            return True
        self._held.setdefault(request.handle, request)
        self._name_first()
        return False

    def _not_held(self, request: Request) -> None:
        """`request` waits for no participant any more."""
        if self._held.pop(request.handle, None) is not None:
            request.first = False
            self._name_first()

    def _name_first(self) -> None:
        """Let the request that has been held back longest know: it alone may hold something while it waits."""
        longest = next(iter(self._held.values()), None)
        if longest is not None:
            longest.first = True

    def _state(self, builder: PlanBuilder) -> SchedulerState:
        return SchedulerState(
            running=len(self.running),
            waiting=len(self.waiting),
            blocks_free=self.pool.free,
            blocks_total=self.pool.total,
            budget=builder.budget,
        )

    def _may_enter(self, request: Request) -> bool:
        """Whether a row is there for a new request, or a preempted one has anything left to compute."""
        if request.row < 0:
            return self.rows.free > 0
        if self.rows.slack[request.row]:
            return False  # where it goes on is known when the drafts in flight are verified
        # At its limit it only waits for a token that a step in flight is sampling.
        return bool(self.rows.known[request.row] < self.rows.limit[request.row])

    def _admit(self, builder: PlanBuilder, request: Request) -> bool:
        """Give `request` its blocks and first chunk; False (without side effects) if blocks are short."""
        length = int(self.rows.known[request.row]) if request.row >= 0 else request.num_given
        hashes = self.cache.usable(request, length)
        hit = self.cache.match(hashes)
        place, supplied = self._best_supply(request, hashes, hit.columns)
        size = self.rows.block_size
        filled = hit.columns + supplied
        count = self._first_chunk(request, length - filled * size, filled * size, builder)
        columns, dead = -(-(filled * size + count) // size), self._dead(hit, filled)
        fresh = sum(columns - max(first, hit.columns) for first in dead)
        # Of what is cached, a supplied prefix leaves behind what it lies far enough beyond.
        kept = [blocks[first - own :] for blocks, first, own in zip(hit.tables, dead, hit.dead, strict=True)]
        revived = sum(1 for blocks in kept for block in blocks if self.pool.is_free(block))
        headroom = self._headroom if self.running else 0
        if not count or not builder.takes(count) or fresh + revived + headroom > self.pool.free:
            return False

        self.waiting.pop()
        if hit.columns:
            request.shared_in = self._number
            self._promises.share(request, hit)
        for blocks in kept:
            self.pool.share(blocks)
        taken = self.pool.allocate(fresh)
        tables = _tables(dead, kept, columns, taken)
        if place is not None and not self._order(place, request, tables, hit.columns, supplied):
            filled, dead, tables = self._unsupplied(hit, dead, kept, taken)
            # It keeps its blocks: whatever half an order brings is overwritten by what it computes.
            rest = length - filled * size
            again = rest if self._whole_prompts else self._first_chunk(request, rest, filled * size, builder)
            count = min(again or count, (len(tables[0]) - filled) * size)
        cached = filled * size
        self._enter(builder, request, cached)
        builder.admit(request.row, count, tables)
        if self.snapshots is not None and hit.columns:
            self.snapshots.load(request.row, hashes[hit.columns - 1])
        self.rows.place_blocks(request.row, tables, dead)
        self.rows.computed[request.row] = cached
        self.rows.published[request.row] = filled
        if builder.allowance is not None:
            builder.allowance.spend(cached, count, scored=request.scored)
        self._publisher.publish_one(request, cached + count)
        return True

    def _dead(self, hit: Hit, filled: int) -> Sequence[int]:
        """Return the dead columns of each group before a query behind `filled` columns."""
        if filled == hit.columns:
            return hit.dead
        dead: list[int] = self.cache.managers.dead_columns(filled)[:, filled].tolist()
        return dead

    def _unsupplied(
        self, hit: Hit, dead: Sequence[int], kept: Sequence[list[int]], taken: list[int]
    ) -> tuple[int, Sequence[int], list[list[int]]]:
        """Return filled columns, dead columns and tables of a request whose order failed, of the blocks it was given.

        Where the supplied prefix would have left cached blocks behind, the request does not hold them: it starts over.
        """
        groups, filled, first = self.rows.groups, hit.columns, hit.dead
        if dead != first:
            for blocks in kept:
                self.pool.release(blocks)
            filled, first, kept = 0, [0] * groups, [[]] * groups
        columns = filled + len(taken) // groups
        self.pool.release(taken[groups * (columns - filled) :])
        return filled, first, _tables(first, kept, columns, taken)

    def _order(self, place: Place, request: Request, tables: Sequence[list[int]], first: int, count: int) -> bool:
        """Have `count` columns of a request's `tables` from `first` on filled before this step reads anything."""
        ordered = [blocks[first : first + count] for blocks in tables]
        columns = enumerate(zip(*ordered, strict=True), first)
        refs = [BlockRef(i, request.hashes[i], blocks) for i, blocks in columns]
        if not place(request, refs):
            return False
        self.cache.publish(request, ordered, first)
        self._promises.order(request, self._number, refs)
        return True

    def _first_chunk(self, request: Request, rest: int, cached: int, builder: PlanBuilder) -> int:
        """Return how many of the `rest` tokens run in this step; 0 if the request has to wait for another one."""
        if self._whole_prompts:
            return rest if rest <= builder.budget else 0
        count = self._longest_chunk(request, rest, cached, builder)
        if self.snapshots is None:
            return count
        return int(self.snapshots.cut(np.array([cached]), np.array([count]))[0])

    def _longest_chunk(self, request: Request, rest: int, cached: int, builder: PlanBuilder) -> int:
        """Return how many of the `rest` tokens of a prompt may run in this step."""
        count = min(rest, self.limits.max_chunk)
        if count > builder.budget + self.limits.slack:
            count = builder.budget
        if builder.allowance is not None:
            count = builder.allowance.fits(cached, count, scored=request.scored)
        if self._chunk is None or count <= 1:
            return count
        request.num_computed = cached
        return _clamped(self._chunk(request, count), count)

    def _best_supply(self, request: Request, hashes: list[bytes], local: int) -> tuple[Place | None, int]:
        """Return how to order blocks behind the local prefix from the first participant that has some, and how many."""
        if local < len(hashes) and not request.stranded:
            for supply, place in self.stages.supply:
                count = supply(request, hashes, local)
                if count > 0:
                    return place, min(count, len(hashes) - local)
        return None, 0

    def _enter(self, builder: PlanBuilder, request: Request, cached: int) -> None:
        """Make a request running; at its first admission it gets its row and its cached tokens are counted."""
        request.status = Status.RUNNING
        first = request.row < 0
        if first:
            self.rows.claim(request)
        self.running[request.row] = request
        self._came.append(request.row)
        self._not_held(request)
        for run in self.stages.run:
            run(request)
        if first:
            builder.new(request, self._row_parts(request))
            self._first_admitted(request, cached)
        elif request.retold:
            builder.new(request, self._row_parts(request))
            request.retold = False
            if request in self.first_scheduled:  # nobody was told yet
                request.cached_tokens = cached

    def _first_admitted(self, request: Request, cached: int) -> None:
        request.cached_tokens, request.scheduled = cached, time.monotonic()
        self.first_scheduled.append(request)
        if request.reusable and self.cache.enabled:
            self.cache.count(request.num_given, cached)

    # -- bookkeeping ---------------------------------------------------------------------------------------------

    def _seal(self, builder: PlanBuilder) -> Step:
        """Turn the builder into a plan and advance every counter as if it had run."""
        table = self.rows
        plan, rows = builder.plan(self._number, table)
        self._number += 1
        ends = plan.starts + plan.counts
        table.computed[rows] = ends
        table.known[rows] += plan.samples
        if plan.drafts is not None:
            table.bound(rows, np.maximum(plan.drafts, 0))
        self._publisher.publish(rows, ends)
        self._publisher.offer_kept()
        if self.snapshots is not None:
            plan.states = self.snapshots.copies(rows, ends)
        for add_to in self.stages.plan:
            add_to(plan)
        return Step(plan, rows, table.epoch[rows])

    def check(self) -> None:
        """Verify blocks, rows and queues against each other. Raises `RuntimeError` naming what is broken."""
        owners = [request.row for request in self.requests.values() if request.row >= 0]
        self.pool.check([self.rows.blocks(row) for row in owners])
        if self.snapshots is not None:
            self.snapshots.check()
        table = self.rows
        writable = [
            b for row in owners for b in table.tables[:, row, table.published[row] : table.owned[row]].ravel().tolist()
        ]
        if len(set(writable)) != len(writable) or any(self.pool.shared(block) for block in writable):
            raise RuntimeError("a block that is still being written is in two tables")
        held = [len(table.blocks(row)) + table.dead[:, row].sum() for row in owners]
        if any(count != table.groups * table.owned[row] for count, row in zip(held, owners, strict=True)):
            raise RuntimeError("a row misses a block behind the columns that it gave back")
        if self._current_rows().tolist() != [request.row for request in self.running.values()]:
            raise RuntimeError("the array of running rows is not that of the running requests")
        if len(self.running) + len(self.waiting) != len(self.requests):
            raise RuntimeError("running + waiting != live requests")
        if self.rows.free + len(owners) != self.rows.capacity:
            raise RuntimeError("free rows + owned rows != rows")


def _clamped(wanted: int, most: int) -> int:
    return max(1, min(int(wanted), most))


def _tables(dead: Sequence[int], kept: Sequence[list[int]], columns: int, fresh: Sequence[int]) -> list[list[int]]:
    """Return each group's table of `columns` blocks: null blocks, those that are kept, and fresh ones behind."""
    tables, begin = [], 0
    for first, blocks in zip(dead, kept, strict=True):
        end = begin + columns - first - len(blocks)
        tables.append([NULL_BLOCK] * first + blocks + list(fresh[begin:end]))
        begin = end
    return tables
