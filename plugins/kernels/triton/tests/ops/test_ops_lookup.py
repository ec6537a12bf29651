"""Embeddings in the interpreter."""

import pytest
import torch
from core_plugin_kernels_triton.ops.lookup import Lookup

from core.api import PLAIN, LayerSite, ProductPlace
from core_testing.conformance.tools.parts import plain_part

CPU = torch.device("cpu")


def product(rows, width, dtype, *, bias=False):
    site = LayerSite("embedding", "embed", width, (("", rows),), bias)
    return Lookup(ProductPlace(site, (PLAIN,), CPU, dtype), {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rows_are_copied(values, dtype):
    for rows, width in ((1, 1), (7, 5), (9, 40)):
        table = product(rows, width, dtype)
        params = {name: torch.empty(shape, dtype=kind) for name, (shape, kind) in table.sizes().items()}
        table.pack(plain_part(values(rows, width)), 0, params)
        ids = torch.tensor([rows - 1, 0, rows // 2, 0])
        assert torch.equal(table.look_up(ids, params), params["weight"][ids])
        assert table.look_up(ids[:0], params).shape == (0, width)


def test_a_row_of_another_number_is_not_read(values):
    table, weight = product(5, 20, torch.float32), values(5, 20)
    weight[[0, 2, 4]] = float("nan")
    assert bool(table.look_up(torch.tensor([1, 3]), {"weight": weight}).isfinite().all())


def test_a_head_is_a_product(values, close):
    head = product(9, 6, torch.float32, bias=True)
    params = {name: torch.empty(shape, dtype=kind) for name, (shape, kind) in head.sizes().items()}
    weight, bias, x = values(9, 6), values(9, seed=1), values(4, 6, seed=2)
    part = plain_part(weight)
    part.bias = bias
    head.pack(part, 0, params)
    close(head.apply(x, params), x.double() @ weight.double().T + bias.double())
