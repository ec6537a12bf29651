"""Programs with torch operations in them: cut there, equal to the forward pass for every number of tokens."""

from types import SimpleNamespace

import pytest
import torch
from core_plugin_cpu.graphs import CAPACITIES, PaddedStep, ProgramGraph, ProgramGraphs
from core_plugin_cpu.native import elementwise, library

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
    return SimpleNamespace(token_ids=ids, positions=torch.arange(tokens), plan=step.plan, keep=step)


def compare(parts, sizes=EVERY):
    """Record, then replay steps of several sizes beside the forward pass; return the facet."""
    facet = ProgramGraphs()
    graph = facet.capture(parts.forward, step_of(3))
    assert isinstance(graph, ProgramGraph), facet.refused
    for seed, tokens in enumerate((*sizes, 5, 1)):
        step = step_of(tokens, seed)
        assert torch.equal(graph.replay(step), parts.forward(step)), f"{tokens} tokens"
    return facet


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
    facet = compare(Parts(work, dtype))
    assert "segments; torch: aten." in facet.describe()
