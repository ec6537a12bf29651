"""Native multi-head latent attention against its definition in float64, at every instruction set here."""

from functools import cache

import pytest
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_cpu.manifest import CPU_NATIVE
from core_plugin_cpu.native import attention as kernels
from core_plugin_cpu.native import refine
from core_plugin_torch_sdpa.elements import decode, encode

from core.api.attention import AttentionContext
from core.api.descriptors import AttentionRequest
from core.api.verdict import ProbeResult

from .latents import filled, make_case, site_of

CPU = torch.device("cpu")

LITE = (16, 512, 64, 128, 128)
"""DeepSeek V2 Lite: heads, latent, rotated key, key, value."""

MIXED = ((300, 1), (0, 70), (100, 40), (0, 33), (5, 3), (0, 1), (37, 17), (130, 1))
"""Context and new tokens of rows in every form: decoding, prompts, pieces of prompts."""


@cache
def defined(rows, site, dtype, kv_dtype, seed=0, scale=1.0):
    """Attention by keys and values of every head, in float64."""
    case, results, begin = make_case(rows, site, dtype, seed, scale), [], 0
    for (context, new), kept in zip(rows, case.kept):
        parts = kept.split([site.latent_dim, site.rope_dim], -1)
        latent, rotated = (
            decode(encode(one, kv_dtype, scale), kv_dtype, torch.float32, scale).double() for one in parts
        )
        own = torch.einsum("hkl,pl->hpk", case.key.double(), latent)
        keys = torch.cat([own, rotated.expand(len(own), -1, -1)], -1)
        q = torch.cat([case.q, case.q_rope], -1)[begin : begin + new].double()
        scores = torch.einsum("qhd,hpd->hqp", q, keys) * site.scale
        hidden = torch.arange(context + new)[None] > torch.arange(context, context + new)[:, None]
        shares = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        values = torch.einsum("pl,hlv->hpv", latent, case.value.double())
        results.append(torch.einsum("hqp,hpv->qhv", shares, values).flatten(1))
        begin += new
    return torch.cat(results)


def scaled_layer(backend, site, scale):
    layer = backend.latent(site)
    layer.use_scales(torch.tensor(scale), torch.tensor(scale))
    return layer


def attend(rows, site, block_size=32, dtype=torch.float32, kv_dtype=None, seed=0, scale=1.0):
    case = make_case(rows, site, dtype, seed, scale)
    backend = NativeAttentionBackend(AttentionContext(CPU, dtype, kv_dtype or dtype, block_size))
    layer = scaled_layer(backend, site, scale)
    layer.use_up(case.key, case.value)
    kv, step, _ = filled(layer, backend, case, site, block_size)
    return layer.forward(case.q, case.q_rope, kv, backend.plan(step))


def check(rows, site, block_size=32, dtype=torch.float32, kv_dtype=None, seed=0, scale=1.0):
    got = attend(rows, site, block_size, dtype, kv_dtype, seed, scale)
    assert got.dtype == dtype
    wanted = defined(rows, site, dtype, kv_dtype or dtype, seed, scale).float()
    tolerance = {"rtol": 1e-4, "atol": 2e-5} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.015}
    torch.testing.assert_close(got.float() / scale, wanted / scale, **tolerance)


@pytest.mark.covers("ATTN-08")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "sizes",
    [
        (3, 48, 16, 32, 24),
        (1, 64, 32, 32, 64),
        (5, 16, 8, 64, 80),
        (2, 20, 6, 10, 12),
        (16, 128, 64, 96, 32),
        (100, 32, 16, 16, 16),
    ],
)
def test_rows_of_every_kind_for_any_sizes(isa, sizes, dtype):
    check(MIXED, site_of(*sizes), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_sizes_of_a_model(isa, dtype):
    check(((290, 1), (0, 40), (60, 9), (200, 150)), site_of(*LITE), dtype=dtype)


@pytest.mark.covers("ATTN-08")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_dtype", list(kernels.CACHE_CODES))
@pytest.mark.parametrize("sizes", [(4, 64, 32, 32, 32), (3, 52, 12, 33, 24)])
def test_every_dtype_of_the_cache(isa, sizes, kv_dtype, dtype):
    check(MIXED, site_of(*sizes), dtype=dtype, kv_dtype=kv_dtype)


FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
SCALES = (900.0, 0.003)
"""With the first, most of what is kept is beyond the range of e4m3; with the second, below its normal numbers."""


@pytest.mark.covers("ATTN-08")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_dtype", FLOAT8)
@pytest.mark.parametrize("scale", SCALES)
def test_scales_bring_latents_into_the_range_of_float8(isa, kv_dtype, dtype, scale):
    check(MIXED, site_of(3, 52, 12, 33, 24), dtype=dtype, kv_dtype=kv_dtype, scale=scale)


@pytest.mark.parametrize("block_size", [16, 48, 256])
def test_blocks_of_any_size(isa, block_size):
    check(MIXED, site_of(3, 48, 16, 32, 24), block_size)


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("rows", [((4000, 1),), ((1500, 1), (900, 1)), ((0, 1300),), ((700, 400), (2000, 1))])
def test_work_is_divided_among_threads(rows, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(rows, site_of(4, 64, 32, 32, 48), dtype=torch.bfloat16)
    finally:
        torch.set_num_threads(before)


def test_a_long_row_is_cut_into_chunks_of_queries():
    check(((100, 2100),), site_of(2, 64, 16, 32, 32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("kv_dtype", "scale"), [*((one, 1.0) for one in kernels.CACHE_CODES), *((one, SCALES[0]) for one in FLOAT8)]
)
@pytest.mark.parametrize("sizes", [(1, 64, 32, 32, 32), (1, 52, 12, 33, 24)])
def test_a_cache_holds_what_the_specification_stores(isa, sizes, kv_dtype, scale, dtype):
    site, block_size = site_of(*sizes), 16
    case = make_case(((3, 20), (0, 5)), site, dtype, scale=scale)
    backend = NativeAttentionBackend(AttentionContext(CPU, dtype, kv_dtype, block_size))
    kv, _, whole = filled(scaled_layer(backend, site, scale), backend, case, site, block_size)
    parts = torch.cat(case.kept).split([site.latent_dim, site.rope_dim], -1)
    wanted = torch.full_like(kv.view(torch.uint8), 0xFF).view(kv.dtype).flatten(0, 1)
    wanted[whole.slots] = torch.cat([encode(one, kv_dtype, scale) for one in parts], -1)
    assert torch.equal(kv.flatten(0, 1).view(torch.uint8), wanted.view(torch.uint8))


def test_what_does_not_fit_is_refused():
    site = site_of(2, 32, 16, 16, 16)
    case = make_case(((3, 2),), site, torch.float32)
    backend = NativeAttentionBackend(AttentionContext(CPU, torch.float32, torch.float32, 16))
    layer = backend.latent(site)
    with pytest.raises(ValueError, match=r"\(2, 16, 32\)"):
        layer.use_up(case.key[:, :8], case.value)
    layer.use_up(case.key, case.value)
    kv, step, _ = filled(layer, backend, case, site, 16)
    plan = backend.plan(step)
    for q, rope in ((case.q[:1], case.q_rope), (case.q, case.q_rope.double()), (case.q[..., :8], case.q_rope)):
        with pytest.raises(ValueError, match="do not fit"):
            layer.forward(q, rope, kv, plan)
    with pytest.raises(ValueError, match="do not fit"):
        layer.forward(case.q, case.q_rope, kv[..., :40], plan)
    with pytest.raises(IndexError, match="blocks of row 0"):
        layer.forward(case.q, case.q_rope, kv[:1], plan)
    with pytest.raises(ValueError, match="do not fit"):
        layer.write(torch.zeros(2, 31), torch.zeros(2, 16), kv, plan)


@pytest.mark.parametrize("feature", ["latent", "picks", "compressed"])
def test_latent_models_are_served_whatever_the_size_of_their_heads(feature):
    request = AttentionRequest(
        device_type="cpu",
        dtype="float32",
        kv_dtype="int8",
        head_dim=300,
        num_heads=16,
        num_kv_heads=16,
        block_size=32,
        features=frozenset({feature} | {"latent"} if feature == "picks" else {feature}),
    )
    assert request.check(CPU_NATIVE).ok
    assert refine.attention(request, ProbeResult(available=True)).ok
