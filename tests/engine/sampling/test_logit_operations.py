"""The operations that change logits, and how the sampler's processors call them."""

import numpy as np
import pytest
import torch

from core.ops import add_bias, mask_tokens
from core.ops.registry import REGISTRY
from core.worker.sampling.batch import Feature, SampleBatch
from core.worker.sampling.bias import LogitBias
from core.worker.sampling.forbidden import StepTokens
from core.worker.transfers import Transfers

NEVER = float("-inf")
HERE = Transfers(torch.device("cpu"))


def bits_of(rows, words, seed=0):
    return np.random.default_rng(seed).integers(-(2**31), 2**31, (rows, words)).astype(np.int32)


def allowed(bits, vocab):
    return torch.from_numpy(np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")[:, :vocab].astype(bool))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_bits_leave_what_they_name(dtype):
    for rows, vocab, words in ((1, 1, 1), (3, 31, 1), (2, 32, 1), (2, 33, 2), (4, 100, 5)):
        logits, bits = torch.randn(rows, vocab).to(dtype), bits_of(rows, words)
        due = torch.where(allowed(bits, vocab), logits, NEVER)
        mask_tokens(logits, torch.from_numpy(bits))
        assert torch.equal(logits, due)


def test_bits_and_logits_may_be_slices():
    whole, wide = torch.randn(4, 70), bits_of(2, 9)
    bits, due = torch.from_numpy(wide)[:, 3:5], whole.clone()
    due[1:3, 2:62] = torch.where(allowed(np.ascontiguousarray(wide[:, 3:5]), 60), due[1:3, 2:62], NEVER)
    mask_tokens(whole[1:3, 2:62], bits)
    assert torch.equal(whole, due)


def test_no_rows():
    mask_tokens(torch.zeros(0, 40), torch.zeros(0, 2, dtype=torch.int32))


def test_every_tenth_token_of_a_large_vocabulary():
    logits, vocab = torch.zeros(1, 50257), 50257
    kept = np.zeros((vocab + 31) // 32 * 32, np.uint8)
    kept[:vocab:10] = 1
    mask_tokens(logits, torch.from_numpy(np.packbits(kept, bitorder="little").view(np.int32)[None]))
    assert torch.equal(logits[0].isfinite().nonzero().flatten(), torch.arange(0, vocab, 10))


def test_bias_in_bfloat16_is_rounded():
    logits = torch.tensor([[256.0, 1.0]], dtype=torch.bfloat16)
    add_bias(logits, torch.tensor([0]), torch.tensor([0]), torch.tensor([3.0]))
    assert logits.tolist() == [[260.0, 1.0]]


def batch(rows, feature, constrained=(), allowed=None):
    flags = np.array([feature if row in constrained else 0 for row in rows], dtype=np.uint32)
    none = np.zeros(len(rows), dtype=np.int64)
    return SampleBatch(np.array(rows), flags, none, none, torch.zeros(1, 1, dtype=torch.int32), allowed or {})


def test_rows_that_follow_each_other_are_masked_at_once():
    calls = []

    def mask(logits, bits):
        calls.append(len(logits))
        mask_tokens(logits, bits)

    bits, logits = bits_of(8, 2), torch.randn(6, 40)
    rows, held = [7, 2, 4, 0, 5, 1], {2, 4, 5, 1}
    due = logits.clone()
    for place, row in enumerate(rows):
        if row in held:
            due[place] = torch.where(allowed(bits[row : row + 1], 40)[0], due[place], NEVER)
    StepTokens(HERE, mask).apply(logits, batch(rows, Feature.CONSTRAINED, held, dict(enumerate(bits))))
    assert torch.equal(logits, due) and calls == [2, 2]
    StepTokens(HERE, mask).apply(logits, batch(rows, Feature.CONSTRAINED, set(rows), dict(enumerate(bits))))
    assert calls == [2, 2, 6]


class Params:
    def __init__(self, bias):
        self.logit_bias = bias


def test_biases_are_joined_once_until_somebody_comes_or_moves():
    joined = []

    def add(logits, rows, ids, values):
        joined.append(ids)
        add_bias(logits, rows, ids, values)

    bias = LogitBias(10, HERE, add)
    assert bias.admit(3, Params({1: 2.0, 11: 9.0}), ()) and bias.admit(5, Params({1: -1.0, 4: 1.5}), ())
    assert not bias.admit(6, Params(None), ())

    def applied(rows):
        logits = torch.zeros(len(rows), 10)
        bias.apply(logits, batch(rows, Feature.BIAS, {3, 5}))
        return {(rows[i], token): logits[i, token].item() for i, token in logits.nonzero().tolist()}

    due = {(3, 1): 2.0, (5, 1): -1.0, (5, 4): 1.5}
    assert applied([3, 6, 5]) == applied([3, 6, 5]) == applied([5, 3]) == applied([6, 5, 3]) == due
    assert joined[0] is joined[1] and joined[2] is not joined[1]
    assert bias.admit(5, Params({7: 4.0}), ())
    assert applied([6, 5, 3]) == {(3, 1): 2.0, (5, 7): 4.0}
    assert applied([6, 3]) == {(3, 1): 2.0}


def test_the_sampler_asks_for_every_operation_that_choosing_has(make_bench):
    from core.worker.sampling.sampler import Sampler

    asked = []

    def pick(op):
        asked.append(op)
        return REGISTRY[op].reference

    Sampler(4, 40, HERE, pick=pick)
    assert asked == ["argmax", "draw", "mask_tokens", "add_bias", "penalize"]
