"""Queries and keys that are rotated while keys are stored, against core's rotary embedding and then storing."""

import numpy as np
import pytest
import torch
from core_plugin_kernels_triton.attention.backend import TritonBackend
from core_plugin_kernels_triton.attention.form import form_of
from core_plugin_kernels_triton.attention.store import store_rotated
from core_plugin_kernels_triton.attention.tiles import tiles_for

from core.api.attention import AttentionContext, AttentionSite, BatchView, Rotation
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
    # Slices of a fused projection, and what lies between their tokens is no number.
    fused = torch.full((tokens, 13, dim + 1), torch.nan)[:, :12, :dim]
    fused.copy_(torch.randn(tokens, 12, dim))
    q, k, v = fused.split((6, heads, heads), 1)
    slots = torch.randperm(6 * size)[:tokens]
    positions = torch.randint(0, 40, (tokens,))
    table = rotary_table(RopeConfig(head_dim=dim, rotary_dim=turned, interleaved=pairs), 40)
    scales = torch.tensor([1.0, 0.5, 3.0])
    kv = torch.zeros(6, 2, size, heads, dim, dtype=torch.uint8 if kv_dtype.itemsize == 1 else kv_dtype)
    out = torch.full((tokens, 6, dim), torch.nan)
    store_rotated(q, out, k, v, kv, slots, positions, table, scales, scales, pairs, form)
    turned, due = (rotary_interleaved if pairs else rotary)(positions, q, k, table)
    torch.testing.assert_close(out, turned, rtol=0, atol=1e-6)
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_short_types_are_rotated_as_by_the_reference(dtype):
    """A layer gives what rotating by core's form and storing gives; of no tokens, nothing."""
    torch.manual_seed(0)
    site, size = AttentionSite(0, 4, 2, 16, 0.25), 4
    backend = TritonBackend(AttentionContext(CPU, dtype, dtype, size))
    layer = backend.layer(site)
    table = rotary_table(RopeConfig(head_dim=16, rotary_dim=16), 40).to(dtype)
    starts, lengths = np.array([0, 7], dtype=np.int32), np.array([7], dtype=np.int32)
    plan = backend.plan(BatchView(starts, lengths, torch.tensor([[2, 1]]), torch.arange(1, 8), 7, 7))
    q, k, v = torch.randn(7, 4, 16).to(dtype), *torch.randn(2, 7, 2, 16).to(dtype)
    places = torch.tensor([3, 0, 39, 2, 2, 8, 1])
    caches = torch.zeros(2, 3, 2, size, 2, 16, dtype=dtype)
    found = layer.write_rotated(q, k, v, Rotation(places, table, False), caches[0], plan)
    # The reference rounds between its operations, too.
    turned, keys = (one.to(dtype) for one in rotary(places, q.double(), k.double(), table.double()))
    layer.write_kv(keys, v, caches[1], plan)
    torch.testing.assert_close(found, turned)
    torch.testing.assert_close(caches[0], caches[1])
    plan = backend.plan(BatchView(starts[:1], lengths[:0], torch.zeros(0, 0), torch.arange(0), 0, 0))
    nothing = layer.write_rotated(q[:0], k[:0], v[:0], Rotation(places[:0], table, False), caches[0], plan)
    assert nothing.shape == (0, 4, 16)
