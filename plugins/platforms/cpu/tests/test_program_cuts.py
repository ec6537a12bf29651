"""Programs with torch operations in them: cut there, equal to the forward pass for every number of tokens."""

import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from core_plugin_cpu.graphs import CAPACITIES, EagerGraph, PaddedStep, ProgramGraph, ProgramGraphs
from core_plugin_cpu.native import elementwise, library
from core_plugin_cpu.native.torchcalls import Turn

from core.api.steps import StepShape

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

WIDTH, HEADS, VOCAB = 24, 3, 50
EVERY = (1, 2, 3, 4, 7, 16, 33, 256, CAPACITIES[0])


@pytest.fixture(autouse=True)
def as_in_the_worker():
    with torch.inference_mode():
        yield


class Parts:
    """Weights of a toy model; `forward` embeds, normalises, does something in torch and normalises again."""

    def __init__(self, work, dtype=torch.float32):
        self.table = torch.randn(VOCAB, WIDTH).to(dtype)
        self.norm = torch.rand(WIDTH).to(dtype) + 0.5
        self.work = work

    def forward(self, step):
        x = elementwise.rms_norm(elementwise.gather(self.table, step.token_ids), self.norm, 1e-5)
        y = self.work(x, step)
        return elementwise.rms_norm(y, self.norm[: y.shape[-1]].contiguous(), 1e-5)


def step_of(tokens, seed=0):
    """`tokens` rows of one token each; nothing here attends."""
    step = PaddedStep.of(tokens)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCAB, (tokens,), generator=generator)
    places = torch.arange(tokens)
    return SimpleNamespace(token_ids=ids, positions=places, plan=step.plan, plans=step.plans, states=None, keep=step)


def compare(parts, sizes=EVERY):
    """Record, then replay steps of several sizes beside the forward pass; return what the start table says."""
    facet = ProgramGraphs()
    graph = facet.capture(parts.forward, step_of(3))
    assert isinstance(graph, ProgramGraph), facet.refused
    for seed, tokens in enumerate((*sizes, 5, 1)):
        step = step_of(tokens, seed)
        assert torch.equal(graph.replay(step), parts.forward(step)), f"{tokens} tokens"
    return facet.describe()


def cumulate(x, step):
    return torch.cumsum(x, 1)


def sort_columns(x, step):
    return x.sort(dim=-1).values.flip(-1)


def heads(x, step):
    """Softmax over heads, cut out of a view, joined again by torch."""
    weights = x.view(-1, HEADS, WIDTH // HEADS).transpose(1, 2).softmax(-1)
    return (weights.transpose(1, 2).reshape(-1, WIDTH) + 1).log()


def across(x, step):
    """The token dimension is the last one in between."""
    return torch.cumsum(x.t().contiguous(), 0).t().contiguous()


def by_position(x, step):
    return x * torch.sin(step.positions.float()).to(x.dtype).unsqueeze(1)


def ramp(x, step):
    return x.cumsum(1) + torch.arange(x.shape[0], dtype=x.dtype).unsqueeze(1)


def in_place(x, step):
    y = x.clone()
    y[:, 3:5].cumsum_(1)
    y[:, 0].fill_(2.0)
    return y


def last_token(x, step):
    return x + x[-1:].cumsum(1)


def twice(x, step):
    """Native calls between two cuts, and a result that both sides read."""
    y = x.cumsum(1)
    z = elementwise.rms_norm(y, torch.ones(WIDTH, dtype=x.dtype), 1e-5)
    return torch.cumsum(z, 1).cumsum(1) + y


def parameters(x, step):
    """An operation that takes nothing of the step."""
    return x + torch.linspace(0, 1, WIDTH, dtype=x.dtype).cumsum(0)


def picked(x, step):
    values, indices = x.topk(4, dim=-1)
    return torch.zeros_like(x).scatter(1, indices, values) + torch.tensor(0.25, dtype=x.dtype)


WORKS = [cumulate, sort_columns, heads, across, by_position, ramp, in_place, last_token, twice, parameters, picked]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_a_cut_program_equals_the_forward_pass(work, dtype):
    assert "segments; torch: aten." in compare(Parts(work, dtype))


graph_weights = [torch.ones(WIDTH)]
"""Of the test that replaces them."""


class Graph:
    """A facet that has recorded a forward pass, or has not."""

    def __init__(self, work, dtype=torch.float32):
        self.parts, self.facet = Parts(work, dtype), ProgramGraphs()
        self.graph = self.facet.capture(self.parts.forward, step_of(3))


def test_the_calls_a_step_and_the_cuts_are_told_with_what_they_cost():
    calls, _, torch_part = compare(Parts(twice)).partition("; torch: ")
    assert calls == "6 calls in 3 segments"  # a check, a lookup, two norms; a sum of two, a norm
    names, _, spent = torch_part.partition(" (")
    assert names == "aten.cumsum x3" and float(spent.removesuffix(" us)")) > 0


def test_operations_of_the_table_cut_nothing():
    def work(x, step):
        y = torch.tanh(x / 30.0) * 30.0 + x.square() * 0.5
        y = torch.nn.functional.gelu(y, approximate="tanh") - torch.sigmoid(x).mul_(x.exp())
        halves = y.view(-1, 2, WIDTH // 2).transpose(1, 2).reshape(-1, WIDTH)
        return torch.cat([halves[:, 5:], -halves[:, :5]], dim=-1).clamp(-4, 4)

    for dtype in (torch.float32, torch.bfloat16):
        graph = Graph(work, dtype)
        assert graph.facet.describe() == "21 calls"
        for tokens in EVERY:
            step = step_of(tokens, tokens)
            # torch's exponentials end in other bits than the kernels'.
            torch.testing.assert_close(
                graph.graph.replay(step),
                graph.parts.forward(step),
                rtol=2e-2 if dtype.itemsize == 2 else 1e-4,
                atol=2e-2,
            )


def test_rows_of_several_heads_to_a_token_follow_the_tokens():
    def work(x, step):
        rows = x.reshape(-1, WIDTH // HEADS)
        return elementwise.rms_norm(rows, torch.ones(WIDTH // HEADS, dtype=x.dtype), 1e-5).view(-1, WIDTH) * 2.0

    assert compare(Parts(work)) == "6 calls"


HOST = {
    "reads a number": (lambda x, step: x * x.sum().item(), "aten.item.default reads numbers on the host"),
    "branches": (lambda x, step: x if x.sum() > 0 else -x, "reads numbers on the host"),
    "lists": (lambda x, step: x * len(x.tolist()), "reads numbers on the host"),
    "numpy": (lambda x, step: x * float(x.numpy().mean()), "reads numbers on the host"),
    "size by numbers": (lambda x, step: x + x[x > 0].sum(), "the size of what aten.index.Tensor gives is not known"),
    "non-zeros": (lambda x, step: x + x.nonzero().sum(), "the size of what aten.nonzero.default gives is not known"),
    "changes the step": (
        lambda x, step: x + step.positions.sub_(1).sum(),
        "aten.sub_.Tensor changes what the step gives",
    ),
    "changes a constant": (
        lambda x, step: x + torch.zeros(WIDTH, dtype=x.dtype).cumsum_(0).cumsum(0),
        "aten.cumsum_.default changes a tensor that is made once",
    ),
    "first rows": (lambda x, step: x + x[:2].cumsum(1).sum(0), "aten.cumsum: the sizes"),
    "first ten rows": (lambda x, step: x + x[:10].cumsum(1).sum(0), "aten.cumsum: the sizes"),
    "behind the first rows": (lambda x, step: x + x[2:].cumsum(1).sum(0), "aten.cumsum: the sizes"),
    "half of the rows": (lambda x, step: x + x[: len(x) // 2].cumsum(1).sum(0), "aten.cumsum: the sizes"),
    "a scale by the tokens": (lambda x, step: x * (1.0 / len(x)), "scalar of map depends on the number of tokens"),
    "a number by the tokens": (lambda x, step: x.cumsum(1) + x * (1.0 / len(x)), "depends on the number of tokens"),
    "a tensor by the tokens": (
        lambda x, step: x.cumsum(1) * torch.tensor(len(x) ** 0.5),
        "holds other numbers each time",
    ),
    "other operations": (
        lambda x, step: x.cumsum(1) if len(x) > 2 else x.cumsum(1).cumsum(1),
        "for few tokens than for many",
    ),
    "made anew": (
        lambda x, step: x.cumsum(1) + torch.from_numpy(np.random.default_rng().random(WIDTH).astype("f")),
        "holds other numbers each time",
    ),
    "squeezed": (lambda x, step: x.squeeze() * 2, "another shape of one token"),
    "slots": (lambda x, step: x * step.plan.keep.slots.cumsum(0).unsqueeze(1), "aten.cumsum reads the step's slots"),
}


@pytest.mark.parametrize("name", HOST)
def test_what_cannot_be_repeated_runs_as_it_is_and_says_why(name):
    work, why = HOST[name]
    graph = Graph(work)
    assert isinstance(graph.graph, EagerGraph)
    assert why in graph.facet.refused
    assert graph.facet.describe() == f"none: {graph.facet.refused}"
    assert graph.facet.key(StepShape(3, 3, 1, 3)) is None


def test_what_lies_outside_is_read_anew_in_every_step():
    offsets = torch.zeros(WIDTH)
    graph = Graph(lambda x, step: x.cumsum(1) + offsets.cumsum(0))
    for value in (1.0, 5.0):
        offsets.fill_(value)
        step = step_of(4)
        assert torch.equal(graph.graph.replay(step), graph.parts.forward(step))


def test_replaced_weights_are_recorded_anew_and_the_old_ones_let_go():
    graph = Graph(lambda x, step: x.cumsum(1) * graph_weights[0])
    old = weakref.ref(graph_weights[0])
    graph_weights[0], graph.parts.table = torch.randn(WIDTH), torch.randn(VOCAB, WIDTH)
    graph.graph = None
    assert old() is None and graph.facet.describe() == ""
    graph.graph = graph.facet.capture(graph.parts.forward, step_of(3))
    for tokens in (1, 5):
        step = step_of(tokens)
        assert torch.equal(graph.graph.replay(step), graph.parts.forward(step))


def test_a_cut_program_takes_the_memory_of_the_steps_it_runs():
    """What torch hands to torch has no place in the program, and is let go once nobody reads it."""
    graph = Graph(lambda x, step: x.cumsum(1).cumsum(1).cumsum(1).cumsum(1))
    step = step_of(2)
    graph.graph.replay(step)
    (memory, *_) = graph.graph._program.keep
    assert memory.nbytes <= 3 * CAPACITIES[0] * WIDTH * 4
    turn = Turn(2, {"token_ids": step.token_ids, "positions": step.positions})
    graph.graph._program.run(turn)
    assert not turn.results


def test_a_step_that_is_refused_says_which_place_it_names():
    graph = Graph(twice)
    step = step_of(3)
    step.token_ids[1] = VOCAB
    with pytest.raises(IndexError, match="number 1 of 3 is 50"):
        graph.graph.replay(step)


class Lazy:
    """Makes a table when it is first called, and keeps it."""

    def __init__(self, unfit):
        self.table, self.unfit = None, unfit

    def __call__(self, x, step):
        if self.table is None:
            self.table = torch.linspace(1, 2, WIDTH, dtype=x.dtype).cumsum(0)
            self.size = self.table.sum().item()
        y = x.cumsum(1) * self.table
        return y * (y.mean().item() if self.unfit else self.size)


@pytest.mark.parametrize("unfit", [False, True])
def test_what_a_layer_makes_once_and_keeps_is_made(unfit):
    graph, kept = Graph(Lazy(unfit)), Lazy(unfit)
    plain = Parts(kept)
    plain.table, plain.norm = graph.parts.table, graph.parts.norm
    assert isinstance(graph.graph, EagerGraph if unfit else ProgramGraph)
    step = step_of(4)
    assert torch.equal(graph.graph.replay(step), plain.forward(step))
