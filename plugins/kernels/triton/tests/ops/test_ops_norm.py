"""Norms in the interpreter beside float64."""

import pytest
import torch
from core_plugin_kernels_triton.ops import norm

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = ((1, 1), (3, 7), (5, 33), (9, 16), (2, 100), (3, 2, 5), (4, 3, 20))


def rms(x, weight, eps):
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


def layer(x, weight, bias, eps):
    x = x.double()
    centred = x - x.mean(-1, keepdim=True)
    normed = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()
    return normed if bias is None else normed + bias.double()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rms_norm(values, apart, close, shape, dtype):
    x, weight = values(*shape, dtype=dtype), values(shape[-1], dtype=dtype, seed=1)
    due = rms(x, weight, 1e-5)
    close(norm.rms_norm(x, weight, 1e-5), due)
    close(norm.rms_norm(apart(x), weight, 1e-5), due)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_layer_norm(values, apart, close, biased, dtype):
    for shape in SHAPES:
        x, weight = values(*shape, dtype=dtype) + 2, values(shape[-1], dtype=dtype, seed=1)
        bias = values(shape[-1], dtype=dtype, seed=2) if biased else None
        due = layer(x, weight, bias, 1e-3)
        close(norm.layer_norm(x, weight, bias, 1e-3), due)
        close(norm.layer_norm(apart(x), weight, bias, 1e-3), due)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_are_rounded_before_they_are_normed(values, apart, close, dtype):
    for shape in ((1, 1), (5, 33), (2, 100)):
        x, residual = values(*shape, dtype=dtype), values(*shape, dtype=dtype, seed=3) * 4
        weight, bias = values(shape[-1], dtype=dtype, seed=1), values(shape[-1], dtype=dtype, seed=2)
        total = x + residual
        for given in ((x, residual), (apart(x), residual), (apart(x), apart(residual))):
            normed, found = norm.add_rms_norm(*given, weight, 1e-5)
            assert torch.equal(found, total)
            close(normed, rms(total, weight, 1e-5))
            normed, found = norm.add_layer_norm(*given, weight, bias, 1e-3)
            assert torch.equal(found, total)
            close(normed, layer(total, weight, bias, 1e-3))


def test_no_rows(values):
    weight = values(8)
    assert norm.rms_norm(values(0, 8), weight, 1e-5).shape == (0, 8)
    assert [one.shape for one in norm.add_layer_norm(values(0, 8), values(0, 8), weight, None, 1e-5)] == [(0, 8)] * 2


def test_a_strange_row_stays_alone(values, close):
    x, weight = values(9, 16), values(16, seed=1)
    due = rms(x, weight, 1e-5)
    x[4, 3], x[6, 0], x[7, 5] = float("nan"), float("inf"), 1e30
    found = norm.rms_norm(x, weight, 1e-5)
    kept = [0, 1, 2, 3, 5, 8]
    close(found[kept], due[kept])
    torch.testing.assert_close(
        found[[4, 6, 7]], torch.nn.functional.rms_norm(x, (16,), weight, 1e-5)[[4, 6, 7]], equal_nan=True
    )


def test_rows_are_the_same_in_any_batch(values):
    x, weight = values(9, 16), values(16, seed=1)
    whole = norm.rms_norm(x, weight, 1e-5)
    assert torch.equal(norm.rms_norm(x[:2], weight, 1e-5), whole[:2])
    assert torch.equal(norm.rms_norm(x[8:], weight, 1e-5), whole[8:])


def test_arguments_are_left_alone(values):
    x, residual, weight = values(3, 8), values(3, 8, seed=1), values(8, seed=2)
    before = [one.clone() for one in (x, residual, weight)]
    norm.add_rms_norm(x, residual, weight, 1e-5)
    assert all(map(torch.equal, (x, residual, weight), before))
