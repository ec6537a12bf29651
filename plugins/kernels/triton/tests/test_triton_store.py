"""Keys that are rotated while they are stored, against core's rotary embedding and then storing."""

import pytest
import torch
from core_plugin_kernels_triton.attention.form import form_of
from core_plugin_kernels_triton.attention.store import store
from core_plugin_kernels_triton.attention.tiles import tiles_for

from core.api.attention import AttentionSite
from core.api.rotary import RopeConfig
from core.ops.rotary import rotary, rotary_interleaved, rotary_table

CPU = torch.device("cpu")


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("turned", [4, 12, 20])
@pytest.mark.parametrize("kv_dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_rotated_keys_are_stored(kv_dtype, turned, pairs):
    torch.manual_seed(0)
    tokens, heads, dim, size = 11, 3, 20, 4
    site = AttentionSite(0, 6, heads, dim, 1.0)
    form = form_of(site, size, kv_dtype, tiles_for(CPU, 128))
    k, v = torch.randn(2, tokens, heads, dim)
    slots = torch.randperm(6 * size)[:tokens]
    positions = torch.randint(0, 40, (tokens,))
    table = rotary_table(RopeConfig(head_dim=dim, rotary_dim=turned, interleaved=pairs), 40)
    scales = torch.tensor([1.0, 0.5, 3.0])
    kv = torch.zeros(6, 2, size, heads, dim, dtype=torch.uint8 if kv_dtype.itemsize == 1 else kv_dtype)
    store(k, v, kv, slots, positions, table, scales, scales, pairs, form)
    _, due = (rotary_interleaved if pairs else rotary)(positions, k, k, table)
    for half, wanted in ((0, due), (1, v)):
        found = kv[slots // size, half, slots % size].view(kv_dtype).float()
        if kv_dtype.itemsize == 1:
            wanted = wanted / scales[:, None]
        error = (found - wanted).abs()
        step = {torch.float32: 1e-6, torch.bfloat16: 2**-8, torch.float8_e4m3fn: 2**-4, torch.float8_e5m2: 2**-3}
        assert (error <= wanted.abs() * step[kv_dtype] + 2e-3).all()
    untouched = torch.ones(6 * size, dtype=torch.bool)
    untouched[slots] = False
    rest = kv.transpose(1, 2).reshape(6 * size, -1)[untouched]
    assert not rest.any()
