"""Graphs in memory that stays, on the fake device: padding, plans that are refreshed, and numbers that are baked in."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core.api.errors import PluginError
from core.api.facets import GraphFacet
from core.api.steps import StepShape
from core.layers.guard import Owners
from core.layers.states import StateMemory
from core.ops.recurrent import gated_recurrence
from core.worker.fixed import FixedForward
from core.worker.runner import Runner
from core_testing.fakedevice.graphs import RecordingGraphs
from core_testing.fakedevice.queue import LateQueue

MODEL_WIDTH, MAX_ROWS = 32, 6


class WhenMet(RecordingGraphs):
    """Captures a step when it is first met."""

    def sizes(self, limits):
        return ()

    def key(self, shape):
        return shape


@pytest.fixture
def graphed(make_bench):
    """`graphed(facet)` -> a bench whose steps run by the facet's graphs, and the facet.

    Steps with prompts do so if `tokens` is the budget of a step.
    """

    def make(kind=RecordingGraphs, change=lambda bench: bench, tokens=0):
        bench, facet = change(make_bench()), kind(LateQueue())
        backend = bench.backend
        forward = FixedForward(facet, bench.model.forward, Owners(), backend, backend, bench.rows, tokens=tokens)
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
    assert forward.describe() == "decode: 1 captured, of up to 2 rows"


def test_a_facet_is_a_base_class():
    assert issubclass(RecordingGraphs, GraphFacet) and not GraphFacet.fixed
    assert np.array_equal(GraphFacet.sizes(RecordingGraphs(LateQueue()), StepShape(4, 4, 1, 9)), [])


# -- steps with prompts ------------------------------------------------------------------------------------------------


class Mixed(RecordingGraphs):
    tokens = (4, 8, 24)


@pytest.mark.covers("COMP-03")
@pytest.mark.parametrize("kind", [Mixed, type("MixedWhenMet", (WhenMet, Mixed), {})])
def test_steps_with_prompts_give_the_same(make_bench, graphed, prompt, kind):
    wanted = tokens(make_bench(), prompt)
    bench, facet, forward = graphed(kind, tokens=40)
    assert tokens(bench, prompt) == wanted
    three = 3 if kind is not Mixed else 4
    # 9 tokens; 23 with two new prompts; and the preempted row, 16 tokens, beside another.
    assert facet.replayed == [24, 1, 1, 24, three, three, three, 1, 1, 24, 2, 2, 2, 2]
    assert facet.captured[:6] == ([24, 8, 6, 4, 4, 2] if kind is Mixed else [24, 8, 4, 1, 3, 2])
    assert forward.describe().endswith("; 3 with prompts, of up to 24 tokens")


@pytest.mark.covers("COMP-03")
def test_pieces_of_prompts_give_the_same_whatever_is_beside_them(make_bench, graphed, prompt):
    def in_pieces(bench):
        for row, (length, seed) in enumerate(((20, 0), (17, 1), (3, 2), (5, 3))):
            bench.add(row, prompt(length, seed))
        got = []
        # With padding and without; more rows than the last step had, and fewer; tokens that are a row's last ones.
        for counts in ({0: 8}, {0: 2, 1: 2}, {1: 7, 0: 1}, {2: None}, {3: 4, 2: 1}, {0: 9, 1: 8, 3: 1, 2: 1}):
            got.append(bench.step(counts).tokens.tolist())
        return got + [bench.step({0: None, 1: None, 2: None, 3: None}).tokens.tolist() for _ in range(3)]

    wanted = in_pieces(make_bench())
    bench, facet, _ = graphed(Mixed, tokens=40)
    assert in_pieces(bench) == wanted
    assert facet.replayed == [8, 4, 8, 4, 8, 24, 4, 4, 4]


def test_padding_is_a_row_of_its_own_and_changes_no_block_of_a_request(graphed, prompt):
    bench, _, forward = graphed(Mixed, tokens=40)
    bench.add(0, prompt(5))
    bench.step({0: None})
    view = next(one for shape, one in forward._steps.items() if shape.num_tokens == 8).views[0]
    starts, lengths = (one.tolist() for one in view.on_device())
    assert starts == view.query_starts.tolist() == [0, 5, 5, 5, 5, 5, 5, 8]
    assert lengths == view.seq_lens.tolist() == [5, 1, 1, 1, 1, 1, 3]
    used = [0, *bench.blocks[0]]
    unused = [block for block in range(len(bench.caches[0])) if block not in used]
    assert all(not cache[unused].any() for cache in bench.caches) and not view.block_tables[1:].any()
    bench.step({0: None})  # by a graph of single tokens, whose rows are a token long
    assert view.on_device()[1].tolist() == [6, 1, 1, 1, 1, 1, 1]


def test_a_step_with_prompts_runs_as_it_is_where_no_graph_holds_it(make_bench, graphed, prompt):
    bench, facet, _ = graphed(Mixed, tokens=20)  # so that 24 tokens are not captured
    assert 24 not in facet.captured
    bench.add(0, prompt(9))
    bench.step({0: None})
    assert not facet.replayed
    bench, facet, _ = graphed(Mixed, tokens=10**6)  # no more than a row is long
    assert max(facet.captured) == 24


def test_a_number_of_the_host_in_a_step_with_prompts_changes_tokens(graphed, prompt, make_bench):
    def baked(plain):
        return lambda step: plain(step).roll(int(step.batch.seq_lens.max()), 1)

    bench = make_bench()
    bench.runner._forward = baked(bench.runner._forward)
    wanted = tokens(bench, prompt)
    bench, _, forward = graphed(Mixed, tokens=40)
    forward._forward = baked(forward._forward)
    with torch.inference_mode():
        forward.forget()
    assert tokens(bench, prompt)[0] != wanted[0]


def test_a_model_that_waits_for_prompts_alone_keeps_its_other_graphs(make_bench, graphed, prompt, caplog):
    def waiting(bench):
        plain = bench.model.forward
        bench.model.forward = lambda step: (
            plain(step) + (0 * int(step.positions.max()) if step.batch.max_query_len > 1 else 0)
        )
        return bench

    wanted = tokens(make_bench(), prompt)
    bench, facet, forward = graphed(Mixed, waiting, tokens=40)
    assert tokens(bench, prompt) == wanted and facet.captured == [6, 4, 2, 1] and set(facet.replayed) == {1, 2, 4}
    assert [record.message[:9] for record in caplog.records] == ["CORE-P240"]
    why = "; prompts run without: the model cannot be captured with them: RuntimeError: the host waits"
    assert forward.describe().startswith(f"decode: 4 captured, of up to 6 rows{why}")
