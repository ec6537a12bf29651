"""A state machine over pool and scheduler: whatever happens in whatever order, the books balance."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from core.engine.request import Status
from core_testing.arithmetic import generate


class EngineMachine(RuleBasedStateMachine):
    """Adds, schedules, settles, aborts and preempts at will; steps settle in order, as on any device."""

    handles = Bundle("handles")
    make = None
    more: ClassVar[dict] = {}

    def __init__(self):
        super().__init__()
        sizes = {"max_seqs": 4, "budget": 16, "max_len": 48, **self.more}
        self.engine = self.make(blocks=1 + 23 * len(sizes.get("windows", (0,))), **sizes)
        self.prompts: dict[int, tuple[list[int], int]] = {}
        self.flying: list = []

    @rule(target=handles, prompt=st.lists(st.integers(0, 2), min_size=1, max_size=24), count=st.integers(1, 10))
    def add(self, prompt, count):
        handle = len(self.prompts)
        self.prompts[handle] = (prompt, count)
        self.engine.add(handle, prompt, max_tokens=count)
        return handle

    @precondition(lambda self: len(self.flying) < 3)
    @rule()
    def schedule(self):
        step = self.engine.scheduler.schedule()
        if step is not None:
            limits, counts = self.engine.scheduler.limits, step.plan.counts
            decoding = int((counts == 1).sum()) if limits.soft_budget else 0
            if limits.soft_budget and step.plan.drafts is not None:
                decoding = int(counts[step.plan.drafts >= 0].sum())
            assert counts.sum() <= limits.max_num_batched_tokens + decoding + limits.slack
            self.flying.append((step, self.engine.executor.launch(step.plan)))

    @precondition(lambda self: self.flying)
    @rule()
    def settle(self):
        step, pending = self.flying.pop(0)
        outputs = self.engine.loop.settler.settle(step, pending.result())
        self.engine.loop.advance, advance = lambda: outputs, self.engine.loop.advance
        self.engine.advance()
        self.engine.loop.advance = advance

    @rule(handle=consumes(handles))
    def abort(self, handle):
        if handle in self.engine.scheduler.requests:
            self.engine.abort(handle)

    @precondition(lambda self: self.engine.scheduler.running)
    @rule(data=st.data())
    def preempt(self, data):
        running = list(self.engine.scheduler.running.values())
        self.engine.scheduler.preempt(running[data.draw(st.integers(0, len(running) - 1))])

    @rule(target=handles)
    def forget_cache(self):
        self.engine.pool.forget_all()
        return multiple()

    @invariant()
    def books_balance(self):
        engine = self.engine
        engine.scheduler.check()
        assert engine.pool.free + engine.pool.used == engine.pool.total
        table = engine.rows
        for request in engine.scheduler.running.values():
            row = request.row
            assert request.status is Status.RUNNING
            assert table.computed[row] <= table.known[row] <= table.limit[row]
            assert table.prompt[row] <= table.settled[row] <= table.known[row]
            assert table.owned[row] * table.block_size >= table.computed[row]
            assert (table.dead[:, row] <= table.published[row]).all()
            assert 0 <= table.slack[row] <= table.known[row] - table.settled[row]

    @invariant()
    def the_queue_knows_its_tokens(self):
        scheduler = self.engine.scheduler
        waiting = [request for request in scheduler.requests.values() if request.status is Status.WAITING]
        assert scheduler.waiting.tokens == sum(request.num_prompt for request in waiting)

    @invariant()
    def outputs_are_right(self):
        for handle, tokens in self.engine.outputs.items():
            prompt, _ = self.prompts[handle]
            recurrent = self.engine.snapshots is not None
            assert tokens == generate(prompt, len(tokens), 97, self.engine.windows, recurrent=recurrent)

    def teardown(self):
        while self.flying:
            self.settle()
        self.engine.run()
        assert self.engine.pool.used == 0
        assert self.engine.rows.free == self.engine.rows.capacity
        assert not self.engine.scheduler.requests
        for handle, reason in self.engine.finished.items():
            assert (reason, len(self.engine.outputs[handle])) == ("length", self.prompts[handle][1])


class AdvisedMachine(EngineMachine):
    """The same where the budget is advice and prompts are spread over steps."""

    more: ClassVar[dict] = {"soft_budget": True, "spread": True, "max_chunk": 48}


class HurriedMachine(AdvisedMachine):
    """The same with steps kept short beside decoding rows: all of them, as no step is ever short enough."""

    more: ClassVar[dict] = {**AdvisedMachine.more, "latency": 1e-9}


class ShelvedMachine(EngineMachine):
    """The same with a connector that keeps every block and supplies what the prefix cache has lost."""

    more: ClassVar[dict] = {"shelved": True}

    def teardown(self):
        super().teardown()
        windows = self.engine.windows
        texts = [prompt + generate(prompt, count, 97, windows) for prompt, count in self.prompts.values()]
        self.engine.shelf.check(self.engine, texts)


class LosingMachine(ShelvedMachine):
    """The same with loads that fail at any moment, as a whole or for single blocks."""

    more: ClassVar[dict] = {"shelved": True, "lenient": True}

    @rule(target=EngineMachine.handles)
    def the_next_loads_fail(self):
        self.engine.shelf.unreadable.add(self.engine.scheduler._number)
        return multiple()

    @precondition(lambda self: self.engine.shelf.kept)
    @rule(target=EngineMachine.handles, data=st.data())
    def a_block_goes_missing_or_comes_back(self, data):
        kept = list(self.engine.shelf.kept)  # their order is the same in every run, their hashes are not
        self.engine.shelf.missing ^= {kept[data.draw(st.integers(0, len(kept) - 1))]}
        return multiple()


class DraftingMachine(EngineMachine):
    """The same with drafts, most of them right."""

    more: ClassVar[dict] = {"drafts": 4}


class DraftingWindowMachine(EngineMachine):
    """The same where only a few tokens are read, and blocks before them are given back."""

    more: ClassVar[dict] = {"drafts": 4, "windows": (5,), "block_size": 2}


class GroupedMachine(EngineMachine):
    """The same with a window in some layers: two block tables, one of which gives blocks back."""

    more: ClassVar[dict] = {"windows": (0, 5), "block_size": 2}


class ManyGroupsMachine(EngineMachine):
    """The same with seven tables and drafts, and a step budget that is advice."""

    more: ClassVar[dict] = {**AdvisedMachine.more, "windows": (5, 5, 0, 5, 9, 5, 5), "block_size": 2, "drafts": 3}


class GroupedShelfMachine(LosingMachine):
    """The same with a connector whose loads fail, for columns of several blocks."""

    more: ClassVar[dict] = {**LosingMachine.more, "windows": (7, 0, 7), "block_size": 2, "drafts": 2}


class WindowShelfMachine(LosingMachine):
    """The same where every layer has a window."""

    more: ClassVar[dict] = {**LosingMachine.more, "windows": (7,), "block_size": 2}


class DraftingShelfMachine(LosingMachine):
    """The same with a connector whose loads fail, where the budget is advice."""

    more: ClassVar[dict] = {**AdvisedMachine.more, **LosingMachine.more, "drafts": 3}


class RecurrentMachine(EngineMachine):
    """The same with a recurrent state: prefixes are shared as far as there are snapshots, and those are few."""

    more: ClassVar[dict] = {"snapshots": 2, "block_size": 2, "interval": 2}


class RecurrentWindowMachine(AdvisedMachine):
    """The same with a window in some layers, and a step budget that is advice."""

    more: ClassVar[dict] = {**AdvisedMachine.more, "windows": (0, 5), "block_size": 2, "snapshots": 9, "interval": 4}


class UnsharedStateMachine(EngineMachine):
    """The same with a recurrent state and no memory for snapshots."""

    more: ClassVar[dict] = {"snapshots": 0}


MACHINES = [
    (EngineMachine, 120),
    (AdvisedMachine, 50),
    (HurriedMachine, 50),
    (ShelvedMachine, 80),
    (LosingMachine, 100),
    (DraftingMachine, 100),
    (DraftingWindowMachine, 80),
    (DraftingShelfMachine, 80),
    (GroupedMachine, 80),
    (ManyGroupsMachine, 60),
    (GroupedShelfMachine, 80),
    (WindowShelfMachine, 60),
    (RecurrentMachine, 120),
    (RecurrentWindowMachine, 80),
    (UnsharedStateMachine, 40),
]


@pytest.mark.covers("ENG-01")
@pytest.mark.parametrize(("machine", "examples"), MACHINES)
def test_the_books_balance_in_every_order(harness, machine, examples):
    machine.make = staticmethod(harness)
    budget = settings(max_examples=examples, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(machine, settings=budget)
