"""Activations in the interpreter beside float64."""

import pytest
import torch
from core_plugin_kernels_triton.ops import activation
from torch.nn import functional

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
PLAIN = {"gelu": functional.gelu, "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh")}
GATED = {
    "silu_and_mul": functional.silu,
    "gelu_and_mul": functional.gelu,
    "gelu_tanh_and_mul": lambda x: functional.gelu(x, approximate="tanh"),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", PLAIN)
def test_plain(values, apart, close, op, dtype):
    for shape in ((1, 1), (3, 7), (2, 40), (2, 3, 5), (11,)):
        x = values(*shape, dtype=dtype) * 3
        due = PLAIN[op](x.double())
        close(getattr(activation, op)(x), due)
        if len(shape) == 2:
            close(getattr(activation, op)(apart(x)), due)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", GATED)
def test_gated(values, apart, close, op, dtype):
    for shape in ((1, 2), (3, 14), (2, 80), (2, 3, 10), (22,)):
        x = values(*shape, dtype=dtype) * 2
        gate, up = x.double().chunk(2, -1)
        due = GATED[op](gate) * up
        close(getattr(activation, op)(x), due)
        if len(shape) == 2:
            close(getattr(activation, op)(apart(x)), due)


@pytest.mark.parametrize("op", [*PLAIN, *GATED])
def test_no_rows(values, op):
    assert getattr(activation, op)(values(0, 8)).shape == (0, 8 if op in PLAIN else 4)


def test_great_and_strange_values(close):
    x = torch.tensor([[1e-30, -1e-30, 0.0, 30.0, -30.0, 100.0, -100.0, 1e30, -1e30, float("nan")]])
    close(activation.gelu(x), functional.gelu(x).double())
    close(activation.gelu_tanh(x), functional.gelu(x, approximate="tanh").double())
    both = torch.cat((x, torch.ones_like(x)), 1)
    close(activation.silu_and_mul(both), functional.silu(x).double())


def test_infinity_beside_a_row_is_not_read(apart):
    x = apart(torch.zeros(3, 34))
    assert torch.equal(activation.silu_and_mul(x), torch.zeros(3, 17))
