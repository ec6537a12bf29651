"""Structured output in the engine's stages: who waits, who passes, and when masks are made."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from core_plugin_structured.compiling.pool import CompilePool, Compiler, PoolLimits
from core_plugin_structured.compiling.trial import begin
from core_plugin_structured.engine import StructuredParticipant

from core.api.grammars import Grammar
from core.engine.loop import EngineLoop
from core.plugins.handed import Handed
from core_testing.arithmetic import generate, next_token

VOCAB = 97


class AnyToken:
    """A matcher that allows everything and notes what it is asked."""

    def __init__(self, log):
        self.log, self.said = log, []

    def fill(self, mask):
        self.log.append("mask")
        mask[:] = -1

    def accept(self, token):
        self.said.append(token)
        return True

    def rollback(self, count):
        del self.said[-count:]

    def is_complete(self):
        return True


class Gate:
    """A compiler whose grammars are ready when the test says so."""

    def __init__(self, log=None):
        self.log = [] if log is None else log
        self.open: dict[str, threading.Event] = {}

    def __call__(self, kind, value, turn):
        assert self.open.setdefault(value, threading.Event()).wait(20)
        gate = self

        class Compiled:
            def matcher(self):
                return AnyToken(gate.log)

        return Compiled(), 0

    def participant(self):
        pool = CompilePool([Compiler("gate", frozenset({"choice"}), self)], PoolLimits(workers=8))
        return StructuredParticipant(pool, VOCAB, tokenizer=lambda: None)

    def ready(self, participant, harness, value):
        self.open.setdefault(value, threading.Event()).set()
        for job in list(participant._compiling.values()):
            if job.grammar.value == value:
                assert job.wait(30)


def test_those_behind_a_request_that_waits_for_its_grammar_pass_it(harness):
    gate = Gate()
    participant = gate.participant()
    engine = harness(participants=(participant,), max_seqs=4)
    engine.add(1, [1, 2], max_tokens=2, grammar=Grammar("choice", "slow"))
    engine.add(2, [3, 4], max_tokens=2, grammar=Grammar("choice", "slower"))
    engine.add(3, [5, 6], max_tokens=2)
    for _ in range(20):
        engine.advance()
    assert set(engine.finished) == {3} and len(engine.scheduler.waiting) == 2
    gate.ready(participant, engine, "slower")
    for _ in range(20):
        engine.advance()
    assert set(engine.finished) == {2, 3}
    gate.ready(participant, engine, "slow")
    engine.run()
    assert engine.finished == {1: "length", 2: "length", 3: "length"}


@pytest.mark.covers("GRAM-01")
def test_a_grammar_that_is_never_ready_costs_others_no_step(harness):
    gate = Gate()
    participant = gate.participant()
    engine = harness(participants=(participant,))
    engine.add(1, [1, 2], max_tokens=40)
    while not engine.outputs[1]:
        engine.advance()
    for handle in range(2, 7):
        engine.add(handle, [handle], max_tokens=2, grammar=Grammar("choice", f"hard {handle}"))
    longest = stalled = 0
    while len(engine.outputs[1]) < 40:
        before = len(engine.outputs[1])
        engine.advance()
        stalled = 0 if len(engine.outputs[1]) > before else stalled + 1
        longest = max(longest, stalled)
    assert longest <= 1  # every turn of the loop that settles a step brings a token
    for handle in range(2, 7):
        gate.ready(participant, engine, f"hard {handle}")
    engine.run()
    assert len(engine.finished) == 6


def test_order_is_kept_among_those_that_are_ready(harness):
    gate = Gate()
    participant = gate.participant()
    engine = harness(participants=(participant,), max_seqs=1)
    for handle in (1, 2, 3):
        engine.add(handle, [handle], max_tokens=1, grammar=Grammar("choice", str(handle)))
    for value in ("3", "2", "1"):
        gate.ready(participant, engine, value)
    engine.run()
    assert engine.started == [1, 2, 3]


def test_a_request_that_is_aborted_while_its_grammar_is_compiled_is_gone(harness):
    gate = Gate()
    participant = gate.participant()
    engine = harness(participants=(participant,))
    engine.add(1, [1, 2], max_tokens=2, grammar=Grammar("choice", "slow"))
    engine.advance()
    engine.abort(1)
    engine.add(2, [1, 2], max_tokens=2)
    engine.run()
    assert engine.finished == {2: "length"} and not len(engine.scheduler.waiting)
    gate.ready(participant, engine, "slow")


def test_a_row_that_is_given_on_belongs_to_no_grammar(harness):
    gate = Gate()
    participant = gate.participant()
    engine = harness(participants=(participant,), max_seqs=1)
    engine.add(1, [1, 2], max_tokens=2, grammar=Grammar("choice", "a"))
    gate.ready(participant, engine, "a")
    engine.run()
    masked = len(gate.log)
    engine.add(2, [1, 2], max_tokens=5)
    engine.run()
    assert masked == 2 and len(gate.log) == masked


class Recorder:
    """An executor that notes what it is told, around the arithmetic one."""

    def __init__(self, inner, log):
        self._inner, self.log = inner, log
        self.healthy, self.call = inner.healthy, inner.call

    def launch(self, plan):
        self.log.append(f"launch {plan.number}{' late' if plan.late else ''}")
        pending = self._inner.launch(plan)

        class Pending:
            def result(pending_self):
                self.log.append(f"result {plan.number}")
                return pending.result()

        return Pending()

    def late(self, number, parts):
        self.log.append(f"late {number} rows {parts['structured'].rows.tolist()}")
        self._inner.late(number, parts)


def constrained_run(harness, depth, tokens):
    """Return what the executor is told while one constrained request gets its tokens."""
    log: list = []
    gate = Gate(log)
    participant = gate.participant()
    engine = harness(participants=(participant,), depth=depth)
    engine.loop = EngineLoop(engine.scheduler, Recorder(engine.executor, log), depth)
    engine.add(1, [1, 2], max_tokens=tokens, grammar=Grammar("choice", "a"))
    gate.ready(participant, engine, "a")
    engine.run()
    return log


@pytest.mark.covers("GRAM-02")
def test_masks_are_made_while_the_forward_pass_runs(harness):
    told = [(f"launch {i} late", "mask", f"late {i} rows [0]", f"result {i}") for i in range(3)]
    assert constrained_run(harness, 0, 3) == [line for step in told for line in step]


@pytest.mark.covers("GRAM-02")
def test_a_step_gets_its_masks_when_the_one_before_has_settled(harness):
    assert constrained_run(harness, 2, 4) == [
        *("launch 0 late", "mask", "late 0 rows [0]", "launch 1 late", "launch 2 late", "result 0"),
        *("mask", "late 1 rows [0]", "launch 3 late", "result 1"),
        *("mask", "late 2 rows [0]", "result 2"),
        *("mask", "late 3 rows [0]", "result 3"),
    ]


class Parity:
    """A matcher that allows even and odd tokens in turn, but after a multiple of five the next one too."""

    def __init__(self):
        self.said: list[int] = []

    def allowed(self, token):
        return (token + len(self.said)) % 2 == 0 or bool(self.said and self.said[-1] % 5 == 0)

    def fill(self, mask):
        bits = np.zeros(len(mask) * 32, np.uint8)
        bits[[token for token in range(VOCAB) if self.allowed(token)]] = 1
        mask[:] = np.packbits(bits, bitorder="little").view("<i4")

    def accept(self, token):
        fits = self.allowed(token)
        self.said.append(token)
        return fits


def parity_text(prompt, count):
    """Do token by token what the engine must come to."""
    matcher, tokens = Parity(), list(prompt)
    for _ in range(count):
        tokens.append(next_token(np.array(tokens, np.int32), VOCAB, matcher.allowed))
        assert matcher.accept(tokens[-1])
    return tokens[len(prompt) :]


class ParityGrammar:
    def matcher(self):
        return Parity()


def parity_participant():
    pool = CompilePool([Compiler("parity", frozenset({"choice"}), lambda *_: (ParityGrammar(), 0))], PoolLimits())
    return StructuredParticipant(pool, VOCAB, tokenizer=lambda: None)


@pytest.mark.covers("GRAM-02")
@pytest.mark.parametrize("depth", range(5))
def test_constrained_rows_run_as_often_as_free_ones(harness, depth):
    """Before masks followed the settling of the step before, they got a token in every `depth + 1`-th step only."""
    engine = harness(participants=(parity_participant(),), depth=depth)
    engine.add(1, [1, 2, 3], max_tokens=100, grammar=Grammar("choice", "a"))
    engine.add(2, [1, 2, 3], max_tokens=100)
    while not engine.outputs[1]:
        engine.advance()
    while len(engine.outputs[2]) < 59:
        engine.advance()
        assert len(engine.outputs[1]) == len(engine.outputs[2])
    engine.run()
    assert engine.outputs == {1: parity_text([1, 2, 3], 100), 2: generate([1, 2, 3], 100, VOCAB)}


@pytest.mark.covers("GRAM-02")
@pytest.mark.parametrize("depth", range(5))
@pytest.mark.parametrize("seed", range(4))
def test_constrained_text_is_exact_whatever_happens_to_its_request(harness, depth, seed):
    """Preemption, chunks, shared prefixes, aborts, stop ids, requests that came with output."""
    random = np.random.default_rng(seed)
    engine = harness(participants=(parity_participant(),), depth=depth, blocks=12, budget=12, max_chunk=5, max_seqs=5)
    wanted = {}
    for handle in range(30):
        prompt = random.integers(0, 3, int(random.integers(1, 14))).tolist()
        count, grammar = int(random.integers(1, 16)), Grammar("choice", "a") if handle % 3 else None
        text = parity_text(prompt, count) if grammar else generate(prompt, count, VOCAB)
        known = int(random.integers(0, count)) if handle % 4 == 0 else 0
        stop = text[-1] if handle % 5 == 0 else VOCAB - 1
        ends = text.index(stop, known) + 1 if stop in text[known:] else count
        wanted[handle] = text[known:ends]
        engine.add(handle, prompt, max_tokens=count, grammar=grammar, stop_ids=[stop], generated=text[:known])
        for _ in range(int(random.integers(0, 4))):
            engine.advance()
        if handle % 7 == 6 and handle - 1 in engine.scheduler.requests:
            engine.abort(handle - 1)
            del wanted[handle - 1]
    engine.run()
    assert {handle: engine.outputs[handle] for handle in wanted} == wanted
    assert engine.scheduler.preemptions > 0 and not engine.executor.late_parts


def test_a_matcher_that_breaks_ends_its_own_request(harness):
    gate = Gate()
    participant = gate.participant()
    engine = harness(participants=(participant,))
    engine.add(1, [1, 2], max_tokens=4, grammar=Grammar("choice", "a"))
    engine.add(2, [1, 2], max_tokens=4)
    gate.ready(participant, engine, "a")
    engine.advance()

    def broken(token):
        raise RuntimeError("a dead state")

    next(iter(participant._rows.values())).accept = broken
    engine.run()
    assert engine.finished == {1: "error", 2: "length"}


def test_masks_name_the_rows_that_sample(harness):
    gate = Gate()
    participant = gate.participant()
    engine = harness(participants=(participant,), budget=4, max_chunk=4)
    engine.add(1, list(range(1, 11)), max_tokens=2, grammar=Grammar("choice", "a"))
    gate.ready(participant, engine, "a")
    engine.run()
    assert gate.log == ["mask", "mask"]  # not in the steps that run the prompt's first chunks
    assert np.array(engine.outputs[1]).shape == (2,)


class Limited(AnyToken):
    """A matcher whose library gives up at the second token, when it is asked or when it is told."""

    def __init__(self, asked):
        super().__init__([])
        self.asked = asked

    def fill(self, mask):
        if self.asked and self.said:
            raise RuntimeError("too many items")
        super().fill(mask)

    def accept(self, token):
        if not self.asked and self.said:
            raise RuntimeError("too many items")
        return super().accept(token)


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("asked", [True, False])
def test_a_limit_of_the_library_ends_its_own_request_and_says_so(harness, asked):
    pool = CompilePool([Compiler("limited", frozenset({"choice"}), lambda *asking: (Same(asked), 0))], PoolLimits())
    participant = StructuredParticipant(pool, VOCAB, tokenizer=lambda: None)
    engine = harness(participants=(participant,))
    engine.add(1, [1, 2], max_tokens=9, grammar=Grammar("choice", "a"))
    engine.add(2, [3, 4], max_tokens=9)
    engine.run()
    assert engine.finished == {1: "error", 2: "length"}
    assert engine.errors[1] == "CORE-E162 the grammar cannot be followed any further: too many items"
    assert participant._stuck == {}


class Same:
    def __init__(self, asked):
        self.asked = asked

    def matcher(self):
        return Limited(self.asked)


@pytest.mark.covers("GRAM-01")
def test_a_grammar_that_fails_at_its_first_token_is_no_grammar():
    class Nothing(AnyToken):
        def fill(self, mask):
            mask[:] = 0

    class Compiled:
        def __init__(self, matcher):
            self.matcher = lambda: matcher

    for matcher, said in ((Nothing([]), "no text fits it"), (Doomed([]), "too many items")):
        with pytest.raises(ValueError, match=said):
            begin(Compiled(matcher), VOCAB, Handed("odd"))
    begin(Compiled(AnyToken([])), VOCAB, Handed("odd"))


class Doomed(AnyToken):
    def accept(self, token):
        raise RuntimeError("too many items")
