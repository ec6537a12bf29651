"""Masks, bias and penalties in the interpreter beside the reference forms."""

import pytest
import torch
from core_plugin_kernels_triton.ops import logits as ops

from core.ops import add_bias, mask_tokens, penalize

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def bits_of(rows, words, seed=0):
    return torch.randint(-(2**31), 2**31, (rows, words), generator=torch.Generator().manual_seed(seed)).int()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masks_leave_what_is_allowed(values, apart, dtype):
    for rows, size, words in ((1, 1, 1), (3, 31, 1), (2, 33, 2), (2, 64, 3), (3, 100, 4), (0, 9, 1)):
        logits, bits = values(rows, size, dtype=dtype), bits_of(rows, words)
        due = logits.clone()
        mask_tokens(due, bits)
        for given in (logits.clone(), apart(logits)):
            ops.mask_tokens(given, bits)
            assert torch.equal(given, due)


def test_masks_whose_rows_lie_apart(values):
    logits, bits = values(3, 60), bits_of(3, 6)[:, 2:4]
    due = logits.clone()
    mask_tokens(due, bits.contiguous())
    ops.mask_tokens(logits, bits)
    assert torch.equal(logits, due)


def test_nothing_beside_the_logits_is_written(values):
    whole = values(4, 50)
    before, part = whole.clone(), whole[1:3, 4:37]
    ops.mask_tokens(part, torch.zeros(2, 2, dtype=torch.int32))
    ops.add_bias(part, torch.tensor([1]), torch.tensor([32]), torch.tensor([2.0]))
    assert bool((part == float("-inf")).all())
    part.copy_(before[1:3, 4:37])
    assert torch.equal(whole, before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bias_is_added(values, apart, dtype):
    rows = torch.tensor([0, 0, 2, 2, 2, 3] * 3)
    ids = torch.tensor([4, 36, 0, 5, 7, 1, 5, 35, 1, 6, 8, 2, 6, 34, 2, 9, 10, 3])
    numbers = values(18, seed=1) * 9
    numbers[3] = float("-inf")
    logits = values(4, 37, dtype=dtype)
    due = logits.clone()
    add_bias(due, rows, ids, numbers)
    for given in (logits.clone(), apart(logits)):
        ops.add_bias(given, rows, ids, numbers)
        assert torch.equal(given, due)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_penalties(values, apart, close, dtype):
    logits, rows = values(4, 37, dtype=dtype), torch.tensor([3, 1])
    logits[1, 5], logits[3, 6] = float("-inf"), 0.0
    counts = (bits_of(2, 37) % 3).abs().int()
    prompt = bits_of(2, 37, seed=1) % 4 == 0
    strengths = torch.tensor([[1.3, 0.7], [0.4, -0.2], [0.5, -0.9]])
    due = logits.double()
    penalize(due, rows, counts, prompt, strengths)
    for given in (logits.clone(), apart(logits)):
        ops.penalize(given, rows, counts, prompt, strengths)
        close(given, due)
        assert torch.equal(given[[0, 2]], logits[[0, 2]])
        turned = strengths.T.contiguous().T
        other = logits.clone()
        ops.penalize(other, rows, counts, prompt, turned)
        assert torch.equal(other, given)


def test_nobody_asks(values):
    logits = values(2, 9)
    before, none = logits.clone(), torch.zeros(0, dtype=torch.int64)
    ops.add_bias(logits, none, none, torch.zeros(0))
    ops.penalize(logits, none, torch.zeros(0, 9).int(), torch.zeros(0, 9).bool(), torch.zeros(3, 0))
    assert torch.equal(logits, before)
