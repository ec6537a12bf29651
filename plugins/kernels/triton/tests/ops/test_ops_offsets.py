"""Rows that lie further apart than 32 bits count: of memory whose pages are never touched."""

import pytest
import torch
from core_plugin_kernels_triton.ops.activation import gelu, silu_and_mul
from core_plugin_kernels_triton.ops.logits import add_bias, mask_tokens
from core_plugin_kernels_triton.ops.norm import rms_norm
from core_plugin_kernels_triton.ops.sampling import argmax, draw
from triton.runtime.interpreter import GridExecutor

from core import ops as reference

STRIDE = 2**30 + 24
"""Twice that is more than int32 holds."""


@pytest.fixture(scope="module")
def memory():
    return torch.empty(2 * STRIDE + 64, dtype=torch.float16)


@pytest.fixture
def far(memory, values, monkeypatch):
    """Three rows of 40, far apart. What the interpreter would copy back, all 4 GiB of it, is there already."""
    monkeypatch.setattr(GridExecutor, "_restore_args_dev", lambda *_: None)
    rows = memory.as_strided((3, 40), (STRIDE, 1))
    return rows.copy_(values(3, 40))


def test_layers(far):
    near, weight = far.clone(), torch.ones(40, dtype=torch.float16)
    assert torch.equal(rms_norm(far, weight, 1e-5), rms_norm(near, weight, 1e-5))
    assert torch.equal(gelu(far), gelu(near))
    assert torch.equal(silu_and_mul(far), silu_and_mul(near))


def test_choosing(far):
    near, rows = far.clone(), torch.tensor([2, 0])
    numbers = torch.tensor([[0.9, 1.0], [5.0, 0.0], [0.9, 1.0], [0.0, 0.0], [0.7, 0.2]], dtype=torch.float64)
    assert all(map(torch.equal, argmax(far), reference.argmax(near)))
    assert torch.equal(draw(far, rows, numbers, truncated=True), reference.draw(near, rows, numbers, truncated=True))


def test_changes_in_place(far):
    near = far.clone()
    bits = torch.tensor([[5, 1], [-1, -1], [77, 3]], dtype=torch.int32)
    change = torch.tensor([2, 1]), torch.tensor([0, 39]), torch.tensor([1.5, -2.0])
    for given, form in ((far, (mask_tokens, add_bias)), (near, (reference.mask_tokens, reference.add_bias))):
        form[0](given, bits)
        form[1](given, *change)
    assert torch.equal(far, near)


def test_numbers_of_outputs_are_wide(monkeypatch):
    """Where an output begins is worked out in int64: rows times their size, whatever the argument's stride."""
    from core_plugin_kernels_triton.ops.kernels import embedding
    from triton.runtime.interpreter import interpreter_builder

    widths, add = [], type(interpreter_builder).create_addptr

    def noted(self, pointer, offset):
        widths.append(offset.data.dtype.itemsize)
        return add(self, pointer, offset)

    monkeypatch.setattr(type(interpreter_builder), "create_addptr", noted)
    ids, weight, out = torch.tensor([1]), torch.arange(8.0).view(2, 4), torch.empty(1, 4)
    embedding.look_up[(1,)](ids, weight, out, 1, 4, 4, 1, ROWS=1, BLOCK=4)
    assert out.tolist() == [[4.0, 5.0, 6.0, 7.0]]
    assert widths.count(8) >= 3  # the id's place, the row of the matrix, the row of the output
