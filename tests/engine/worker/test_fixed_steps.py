"""Graphs in memory that stays, on the fake device: padding, plans that are refreshed, and numbers that are baked in."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core.api.errors import PluginError
from core.api.facets import GraphFacet, StepShape
from core.layers.guard import Owners
from core.layers.states import StateMemory
from core.ops.recurrent import gated_recurrence
from core.testing.fakedevice.graphs import RecordingGraphs
from core.testing.fakedevice.queue import LateQueue
from core.worker.fixed import FixedForward
from core.worker.runner import Runner

MODEL_WIDTH, MAX_ROWS = 32, 6


class WhenMet(RecordingGraphs):
    """Captures a step when it is first met."""

    def sizes(self, limits):
        return ()

    def key(self, shape):
        return shape


@pytest.fixture
def graphed(make_bench):
    """`graphed(facet)` -> a bench whose steps of one token a row run by the facet's graphs, and the facet."""

    def make(kind=RecordingGraphs, change=lambda bench: bench):
        bench, facet = change(make_bench()), kind(LateQueue())
        backend = bench.backend
        forward = FixedForward(facet, bench.model.forward, Owners(), backend, backend, bench.rows)
        bench.runner = Runner(bench.model, forward, bench.caches, bench.rows, bench.sampler, forward)
        with torch.inference_mode():
            forward.prepare()
        return bench, facet, forward

    return make


def tokens(bench, prompt):
    """What three rows say that come one after the other, one of them twice."""
    bench.add(0, prompt(9))
    got = [bench.step({0: None}).tokens.tolist() for _ in range(3)]
    bench.add(3, prompt(5, 1))
    bench.add(4, prompt(17, 2), temperature=0.7, seed=3)
    got += [bench.step({0: None, 3: None, 4: None}).tokens.tolist() for _ in range(4)]
    bench.preempt(0)
    got += [bench.step({3: None}).tokens.tolist() for _ in range(2)]
    got += [bench.step({0: None, 3: None}).tokens.tolist() for _ in range(5)]
    return got


@pytest.mark.parametrize("kind", [RecordingGraphs, WhenMet])
def test_padded_steps_give_the_same(make_bench, graphed, prompt, kind):
    wanted = tokens(make_bench(), prompt)
    bench, facet, _ = graphed(kind)
    assert tokens(bench, prompt) == wanted
    assert facet.captured == ([6, 4, 2, 1] if kind is RecordingGraphs else [1, 3, 2])
    # Prompts run as they are, and so do the steps in which one of them is.
    three = 4 if kind is RecordingGraphs else 3
    assert facet.replayed == [1, 1, three, three, three, 1, 1, 2, 2, 2, 2]


class Remembers:
    """A model behind whose layers each channel is a decaying sum over the tokens before."""

    def __init__(self, model):
        self._model, self.state = model, StateMemory("sums", (MODEL_WIDTH,), torch.float32)
        self.state.memory = torch.full((MAX_ROWS + 3, MODEL_WIDTH), float("nan"))
        self.logits = model.logits

    def forward(self, step):
        # Turned, so that a token does not call for itself again, whatever was before.
        hidden = self._model.forward(step).roll(1, 1)
        return gated_recurrence(hidden, torch.full_like(hidden, -0.1), self.state(step))


def remembering(bench):
    """Put states into a bench: those of rows, and behind them others and that of nobody."""
    bench.model = Remembers(bench.model)
    bench.rows.states = [bench.model.state]
    return bench


class Runs(WhenMet):
    """Runs what it captures twice before, on what the memory holds, as devices do that prepare kernels so."""

    def capture(self, forward, step):
        for _ in range(2):
            forward(step)
        return super().capture(forward, step)


@pytest.mark.covers("ATTN-11")
@pytest.mark.parametrize("kind", [RecordingGraphs, WhenMet, Runs])
def test_padded_steps_with_states_give_the_same(make_bench, graphed, prompt, kind):
    """Padding changes nobody's state, and neither does a capture between the steps of rows that run."""
    bench = remembering(make_bench())
    bench.runner = Runner(bench.model, bench.backend, bench.caches, bench.rows, bench.sampler)
    wanted = tokens(bench, prompt)
    bench, facet, _ = graphed(kind, remembering)
    assert tokens(bench, prompt) == wanted
    assert facet.replayed[0] == 1 and len(facet.replayed) == 11
    memory = bench.model.state.memory
    assert memory[[1, 2, 5, 6, 7]].isnan().all(), "a slot of nobody was written"


@pytest.mark.covers("ATTN-11")
def test_states_go_on_where_graphs_are_captured_anew(make_bench, graphed, prompt):
    bench = remembering(make_bench())
    bench.runner = Runner(bench.model, bench.backend, bench.caches, bench.rows, bench.sampler)
    bench.add(0, prompt(9))
    wanted = bench.generate(0, 6)
    bench, _, forward = graphed(Runs, remembering)
    bench.add(0, prompt(9))
    found = bench.generate(0, 3)
    with torch.inference_mode():
        forward.forget()
    assert found + bench.generate(0, 3) == wanted


def test_graphs_are_captured_anew_with_other_weights(graphed, prompt):
    bench, facet, _ = graphed()
    bench.add(0, prompt(9))
    bench.generate(0, 3)
    bench.runner.weights_replaced()
    assert facet.captured == [6, 4, 2, 1] * 2


def test_a_number_of_the_host_that_a_capture_keeps_changes_tokens(graphed, prompt, make_bench):
    def baked(plain):
        # The length of the step that is captured, and of no other.
        return lambda step: plain(step).roll(int(step.batch.seq_lens.max()), 1)

    bench = make_bench()
    bench.runner._forward = baked(bench.runner._forward)
    wanted = tokens(bench, prompt)
    bench, _, forward = graphed()
    forward._forward = baked(forward._forward)
    with torch.inference_mode():
        forward.forget()
    found = tokens(bench, prompt)
    assert found[0] == wanted[0] and found != wanted  # the prompt itself runs without a graph


def test_a_capture_may_not_wait(graphed):
    _, facet, forward = graphed()
    step = next(iter(forward._steps.values())).inputs
    with pytest.raises(RuntimeError, match="waits for the device while a graph is captured"), torch.inference_mode():
        facet.capture(lambda step: step.token_ids + int(step.positions.max()), step)


@pytest.mark.covers("COMP-03")
@pytest.mark.parametrize("kind", [RecordingGraphs, WhenMet])
def test_a_model_that_waits_for_the_device_runs_without_graphs(make_bench, graphed, prompt, kind, caplog):
    def waiting(bench):
        plain = bench.model.forward
        bench.model.forward = lambda step: plain(step) + 0 * int(step.positions.max())
        return bench

    wanted = tokens(make_bench(), prompt)
    bench, facet, forward = graphed(kind, waiting)
    assert tokens(bench, prompt) == wanted and not facet.captured and not facet.replayed
    why = "none: the model cannot be captured: RuntimeError: the host waits for the device while a graph is captured"
    assert forward.describe().startswith(why) and [record.message[:9] for record in caplog.records] == ["CORE-P240"]


def test_what_the_facet_raises_is_its_own(graphed):
    class Broken(RecordingGraphs):
        def capture(self, forward, step):
            super().capture(forward, step)
            raise OSError("no graphs today")

    with pytest.raises(PluginError, match=r"CORE-P108.*no graphs today"):
        graphed(Broken)


def test_a_step_that_no_graph_holds_runs_as_it_is(make_bench, prompt, graphed):
    class Small(RecordingGraphs):
        def sizes(self, limits):
            return [StepShape(2, 2, 1, 12)]

    wanted = tokens(make_bench(), prompt)
    bench, facet, forward = graphed(Small)
    assert tokens(bench, prompt) == wanted
    assert facet.captured == [2] and set(facet.replayed) == {2} and len(facet.replayed) < 7
    assert forward.describe() == "1 captured, of up to 2 rows"


def test_a_facet_is_a_base_class():
    assert issubclass(RecordingGraphs, GraphFacet) and not GraphFacet.fixed
    assert np.array_equal(GraphFacet.sizes(RecordingGraphs(LateQueue()), StepShape(4, 4, 1, 9)), [])
