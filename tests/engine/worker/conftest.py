"""A tiny model with real paged attention, and a driver that plans steps for it by hand."""

import numpy as np
import pytest
import torch
from core_plugin_torch_sdpa.backend import TorchSdpaBackend

from core.api.attention import AttentionContext, AttentionSite
from core.api.sampling_params import SamplingParams
from core.api.steps import BlockUpdate, NewRow, StepPlan
from core.layers.attention import AttentionModule
from core.layers.guard import LayerContext
from core.worker.rows import RowTable
from core.worker.runner import Runner
from core.worker.sampling.sampler import Sampler
from core.worker.transfers import Transfers

VOCAB, HEADS, KV_HEADS, DIM = 61, 4, 2, 8
BLOCK, MAX_LEN, MAX_ROWS, NUM_BLOCKS = 4, 48, 6, 80


class TinyModel:
    """Two attention layers over random embeddings of token and position; `poison` tokens turn into NaN."""

    def __init__(self, backend, *, layers=2, poison=None, seed=0):
        rng = torch.Generator().manual_seed(seed)
        hidden = HEADS * DIM
        context = LayerContext(torch.device("cpu"), torch.float32)
        sites = [AttentionSite(i, HEADS, KV_HEADS, DIM, DIM**-0.5) for i in range(layers)]
        self.attentions = [AttentionModule(site, backend.layer(site), context) for site in sites]
        width = (HEADS + 2 * KV_HEADS) * DIM
        self.weights = [torch.randn(hidden, width, generator=rng) / hidden**0.5 for _ in sites]
        self.embed = torch.randn(VOCAB, hidden, generator=rng)
        self.place = torch.randn(MAX_LEN, hidden, generator=rng)
        self.poison = poison
        self.batches = []

    def forward(self, step):
        self.batches.append(step.batch)
        x = self.embed[step.token_ids] + self.place[step.positions]
        if self.poison is not None:
            x = x.masked_fill((step.token_ids == self.poison)[:, None], float("nan"))
        for attention, weight in zip(self.attentions, self.weights):
            qkv = (x @ weight).view(len(x), -1, DIM)
            x = x + attention(*qkv.split([HEADS, KV_HEADS, KV_HEADS], 1), step)
        return x

    def logits(self, hidden):
        return hidden @ self.embed.T


class Bench:
    """Rows, blocks and plans for a `Runner`; `known` and `computed` are what an engine would track."""

    def __init__(self, *, poison=None, transfers=None):
        cpu = torch.device("cpu")
        transfers = transfers or Transfers(cpu)
        backend = TorchSdpaBackend(AttentionContext(cpu, torch.float32, torch.float32, BLOCK))
        self.backend = backend
        self.model = TinyModel(backend, poison=poison)
        self.caches = []
        for attention in self.model.attentions:
            attention.kv = torch.zeros(NUM_BLOCKS, *backend.kv_layout(attention.site).block_shape)
            self.caches.append(attention.kv)
        self.rows = RowTable(MAX_ROWS, MAX_LEN, BLOCK, transfers)
        self.sampler = Sampler(MAX_ROWS, VOCAB, transfers)
        self.runner = Runner(self.model, backend, self.caches, self.rows, self.sampler)
        self.free = list(np.random.default_rng(0).permutation(np.arange(1, NUM_BLOCKS)))
        self.prompts, self.blocks, self.computed, self.outputs, self.fresh = {}, {}, {}, {}, {}
        self.number = 0

    def add(self, row, prompt, stop_ids=(), **params):
        params.setdefault("temperature", 0.0)
        prompt = np.asarray(prompt, dtype=np.int32)
        self.fresh[row] = NewRow(row, prompt, SamplingParams(**params), tuple(stop_ids))
        self.prompts[row] = prompt
        self.blocks[row], self.computed[row], self.outputs[row] = [], 0, 0

    def preempt(self, row):
        self.free = self.blocks[row] + self.free
        self.blocks[row], self.computed[row] = [], 0

    def plan(self, counts, parts=None):
        """`counts` maps rows to tokens in this step; None runs all that is known."""
        rows, starts, numbers, samples, outputs = [], [], [], [], []
        updates = []
        for row, count in counts.items():
            known = len(self.prompts[row]) + self.outputs[row]
            start = self.computed[row]
            count = known - start if count is None else count
            more = -(-(start + count) // BLOCK) - len(self.blocks[row])
            if more > 0:
                taken = [self.free.pop() for _ in range(more)]
                updates.append((row, len(self.blocks[row]), taken))
                self.blocks[row] += taken
            rows.append(row)
            starts.append(start)
            numbers.append(count)
            samples.append(start + count == known)
            outputs.append(self.outputs[row])
            self.computed[row] += count
            self.outputs[row] += start + count == known
        new = [self.fresh.pop(row) for row in counts if row in self.fresh]
        self.number += 1
        int32 = np.int32
        return StepPlan(
            self.number,
            new,
            (
                BlockUpdate(
                    np.array([row for row, _, _ in updates], int32),
                    np.array([start for _, start, _ in updates], int32),
                    np.concatenate([[0], np.cumsum([len(taken) for _, _, taken in updates])]).astype(int32),
                    np.array([block for _, _, taken in updates for block in taken], int32),
                ),
            ),
            np.array(rows, int32),
            np.array(starts, int32),
            np.array(numbers, int32),
            np.array(samples, bool),
            np.array(outputs, int32),
            parts or {},
        )

    def step(self, counts, **options):
        return self.runner.execute(self.plan(counts, **options))

    def generate(self, row, steps):
        """Greedy tokens of one row, one step each."""
        return [int(self.step({row: None}).tokens[0]) for _ in range(steps)]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def bench():
    return Bench()


@pytest.fixture
def make_bench():
    return Bench


@pytest.fixture
def prompt():
    """`prompt(length, seed)` -> token ids."""
    return lambda length, seed=0: np.random.default_rng(seed).integers(0, VOCAB, length)
