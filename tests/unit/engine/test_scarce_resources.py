"""Two scarce resources at once: nobody waits forever, and without the rules for participants somebody does."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.api.participants import Participant
from core_testing.arithmetic import generate

LEFT, RIGHT, BOTH, NEITHER = 1, 2, 3, 4  # the first token of a prompt says what it needs: bit 0 left, bit 1 right
VOCAB = 97
COUNT = 4
TURNS = 60


class Slot(Participant):
    """One slot, for requests whose first token has this bit."""

    def __init__(self, name, bit):
        self.name, self._bit = name, bit
        self.holder = self.first = None

    def needs(self, request):
        return bool(int(request.prompt[0]) & self._bit)

    def admit(self, request):
        if request.first:
            self.first = request
        if not self.needs(request):
            return True
        kept = self.first is not None and self.first is not request and self.needs(self.first)
        return self.holder is None and not kept

    def run(self, request):
        if self.first is request:
            self.first = None
        if self.needs(request):
            assert self.holder is None
            self.holder = request.handle

    def leave(self, request):
        if self.holder == request.handle:
            self.holder = None

    def finish(self, request):
        self.leave(request)
        if self.first is request:
            self.first = None


class Selfish(Slot):
    """Gives whoever comes what is free, whatever the request needs that has waited longest."""

    def admit(self, request):
        return not self.needs(request) or self.holder is None


class Grabbing(Slot):
    """Takes the slot when it is asked, so that a request holds one while it waits for the other."""

    def admit(self, request):
        if self.needs(request) and self.holder is None:
            self.holder = request.handle
        return not self.needs(request) or self.holder == request.handle

    def run(self, request): ...


def slots(kind):
    return kind("left", LEFT), kind("right", RIGHT)


def text(need, handle):
    return [need, 10 + handle, 20, 30, 40]


def drive(engine, timing, turns):
    """Add request `handle` before turn `timing[handle][1]`; return the turns in which each ended."""
    ended = {}
    for turn in range(turns):
        for handle, (need, start) in timing.items():
            if start == turn:
                engine.add(handle, text(need, handle), max_tokens=COUNT)
        engine.advance()
        ended.update({handle: turn for handle in engine.finished if handle not in ended})
    return ended


class NewestFirst:
    """Last come, first served: whoever comes is asked before those that wait."""

    def key(self, request):
        return (-request.arrival,)

    def victim(self, running):
        return 0


POLICIES = {"arrival": {}, "newest": {"policy": NewestFirst()}}


def orders():
    """Yield handle -> (need, turn in which it comes) for four requests in every order and several timings."""
    timings = ((0,) * 4, (0, 1, 2, 3), (0, 0, 3, 6), (0, 2, 7, 7))
    for needs in sorted(set(permutations((LEFT, RIGHT, BOTH, BOTH)))):
        yield from (dict(enumerate(zip(needs, starts, strict=True))) for starts in timings)


def stream(length=30):
    """Both slots are always wanted by somebody, never free at the same time; request 0 wants both."""
    others = {handle: ((LEFT, RIGHT)[handle % 2], handle) for handle in range(1, length)}
    return {0: (BOTH, 3), **others}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("depth", range(5))
def test_every_order_of_four_requests_ends(harness, depth, policy):
    for timing in orders():
        engine = harness(depth=depth, participants=slots(Slot), **POLICIES[policy])
        assert drive(engine, timing, TURNS).keys() == timing.keys(), timing
        assert engine.outputs == {
            handle: generate(text(need, handle), COUNT, VOCAB) for handle, (need, _) in timing.items()
        }
        engine.scheduler.check()


def test_who_takes_when_asked_can_wait_forever(harness):
    timings = list(orders())
    stuck = sum(len(drive(harness(policy=NewestFirst(), participants=slots(Grabbing)), t, TURNS)) < 4 for t in timings)
    assert 0 < stuck < len(timings)


@pytest.mark.parametrize("depth", range(5))
def test_a_stream_of_others_does_not_keep_the_longest_waiting(harness, depth):
    timing = stream()
    fair = drive(harness(depth=depth, participants=slots(Slot)), timing, 600)
    greedy = drive(harness(depth=depth, participants=slots(Selfish)), timing, 600)
    assert fair.keys() == greedy.keys() == timing.keys()
    assert sum(end < fair[0] for end in fair.values()) <= 6
    assert sum(end < greedy[0] for end in greedy.values()) == len(timing) - 1  # last of all


REQUESTS = st.lists(
    st.tuples(st.sampled_from((LEFT, RIGHT, BOTH, NEITHER)), st.integers(0, 20), st.integers(0, 30), st.booleans()),
    min_size=1,
    max_size=10,
)


@given(requests=REQUESTS, depth=st.integers(0, 4), blocks=st.integers(7, 20), newest=st.booleans())
# `harness` is a class: there is nothing to be reset between inputs.
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_preemption_and_aborts_leave_nobody_waiting(harness, requests, depth, blocks, newest):
    """Requests of up to 24 tokens come and are aborted at any time, in an engine with room for a few of them."""
    both = slots(Slot)
    policy = POLICIES["newest" if newest else "arrival"]
    engine = harness(depth=depth, blocks=blocks, max_seqs=3, participants=both, **policy)
    aborted = set()
    for turn in range(600):
        for handle, (need, start, lifetime, aborts) in enumerate(requests):
            if turn == start:
                engine.add(handle, text(need, handle), max_tokens=19)
            if aborts and turn == start + lifetime and handle in engine.scheduler.requests:
                engine.abort(handle)
                aborted.add(handle)
        engine.advance()
    assert engine.finished.keys() | aborted == set(range(len(requests)))
    assert [slot.holder for slot in both] == [None, None]
    for handle in engine.finished:
        assert engine.outputs[handle] == generate(text(requests[handle][0], handle), 19, VOCAB)
    engine.scheduler.check()
