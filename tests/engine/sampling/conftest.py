"""A sampler whose rows are described by keyword arguments, without a model."""

import numpy as np
import pytest
import torch

from core.api.sampling_params import SamplingParams
from core.api.steps import NewRow
from core.worker.rows import RowTable
from core.worker.sampling.batch import SampleBatch
from core.worker.sampling.sampler import Sampler
from core.worker.transfers import Transfers

VOCAB, MAX_ROWS = 40, 16


class SamplerBench:
    """`add` describes rows; `sample` draws for some of them from given logits."""

    def __init__(self, vocab=VOCAB, seed=0):
        self.transfers = Transfers(torch.device("cpu"))
        self.vocab = vocab
        self.rows = RowTable(MAX_ROWS, 128, 4, self.transfers)
        self.sampler = Sampler(MAX_ROWS, vocab, self.transfers, seed)
        self.texts, self.prompt_lens = {}, {}

    def add(self, row, prompt=(1, 2, 3), output=(), stop_ids=(), **params):
        new = NewRow(row, np.array(prompt, np.int32), SamplingParams(**params), tuple(stop_ids))
        self.rows.admit([new])
        self.sampler.admit([new])
        self.texts[row], self.prompt_lens[row] = list(prompt), len(prompt)
        for token in output:
            self.say(row, token)

    def say(self, row, token):
        self.rows.write_tokens(np.array([row]), np.array([len(self.texts[row])]), torch.tensor([token]))
        self.texts[row].append(token)

    def batch(self, rows):
        rows = np.array(rows, dtype=np.int64)
        known = np.array([len(self.texts[row]) for row in rows])
        outputs = known - np.array([self.prompt_lens[row] for row in rows])
        return SampleBatch(rows, self.sampler.params.flags[rows], outputs, known, self.rows.tokens)

    def sample(self, rows, logits):
        sampled = self.sampler.sample(logits, self.batch(rows), *self.sampler.best(logits))
        return sampled.read(self.transfers.fetch(sampled.tensors()).result())

    def logits_after(self, rows, logits):
        """What the processors make of `logits`."""
        batch = self.batch(rows)
        return self.sampler._prepare(logits, batch, batch.features)[1]

    def tokens(self, rows, logits):
        return self.sample(rows, logits).tokens.tolist()


@pytest.fixture
def bench():
    return SamplerBench()


@pytest.fixture
def make_bench():
    return SamplerBench


@pytest.fixture
def logits():
    """`logits(rows, seed)` -> distinct values in every row."""

    def make(rows, vocab=VOCAB, seed=0):
        rng = np.random.default_rng(seed)
        return torch.from_numpy(rng.normal(size=(rows, vocab)).astype(np.float32) * 2)

    return make
