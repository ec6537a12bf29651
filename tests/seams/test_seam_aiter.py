"""AITER: a stand-in of the library that refuses what its documentation does not allow."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest
import torch
from core_plugin_accelerator import points_of
from core_plugin_aiter import fits
from core_plugin_aiter.formats import converted
from core_plugin_aiter.manifest import AITER, BLOCKS, INT8_LINEAR, LINEAR
from core_plugin_aiter.manifest import ROWS as BY_ROW

from core.api import LayerSite, ProductPlace, WeightForm
from core.api.descriptors import AttentionRequest
from core.api.kernels import KernelRequest
from core.api.steps import StepShape
from core.api.verdict import ProbeResult
from core.ops.products import ReferenceProduct
from core_testing.conformance.tools.parts import plain_part, random_part
from tests.seams.libraries import aiter
from tests.seams.libraries.engines import same_tokens
from tests.seams.libraries.latents import latent_site, same_latents
from tests.seams.libraries.steps import ROWS, context, same_as_reference, site_of

MODULES = [f"core_plugin_aiter.{name}" for name in ("attention", "blocks", "rows", "windows", "latent")]
K = 256
FORMS = {
    "blocks": WeightForm(codes="float8_e4m3fn", outputs=128, inputs=128, activations="float8:128"),
    "rows": WeightForm(codes="int", bits=8, activations="int8:token"),
}


def made():
    return import_module("core_plugin_aiter.attention").AiterAttention


@pytest.fixture
def calls(monkeypatch):
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield aiter.install(monkeypatch)
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("extra", [{}, {"softcap": 3.0}, {"slopes": tuple(0.5**i for i in range(6))}], ids=str)
def test_steps_are_those_of_the_reference_and_nothing_strange_is_read(calls, rows, extra):
    backend = import_module("core_plugin_aiter.attention").AiterAttention(context(16))
    same_as_reference(backend, site_of(**extra), ROWS[rows], 16)
    assert calls == {"none": [], "tokens": ["tokens"], "one": ["tokens"]}.get(rows, ["prompts"])


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("extra", [{"window": 5}, {"window": 5, "softcap": 3.0}], ids=str)
def test_windows(calls, rows, extra):
    same_as_reference(made()(context(16)), site_of(**extra), ROWS[rows], 16)
    assert set(calls) <= {"unified"}


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("window", [None, 5])
def test_sinks(calls, rows, window):
    site = site_of(sinks=True, window=window)
    same_as_reference(made()(context(16)), site, ROWS[rows], 16, sinks=torch.linspace(-1, 1, 6))
    assert set(calls) <= {"unified"}


def test_a_plan_for_graphs_with_windows_and_sinks(calls):
    site = site_of(sinks=True, window=5)
    same_as_reference(made()(context(16)), site, ROWS["tokens"], 16, sinks=torch.linspace(-1, 1, 6), fixed=True)


@pytest.mark.covers("ATTN-06")
@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("heads", [4, 16, 20])
def test_latents_are_attended_as_by_definition(calls, rows, heads):
    same_latents(made(), ROWS[rows], site=latent_site(heads))
    assert calls == {"none": [], "tokens": ["latents 16"], "one": ["latents 16"]}.get(rows, ["latents 1"])


def test_long_prompts_of_latents_are_computed_in_pieces(calls, monkeypatch):
    make = made()
    monkeypatch.setattr("core_plugin_aiter.plan.MOST_QUERIES", 8)
    same_latents(make, ROWS["pieces"])
    assert calls == ["latents 1"] * 4


def test_a_plan_for_graphs_of_latents(calls):
    backend = same_latents(made(), ROWS["tokens"], fixed=True)
    assert len(backend._places) == 4 * 64 and calls == ["latents 16"]


def test_plans_of_graphs_share_the_places_of_latents(calls):
    backend = made()(context(16))
    backend.latent(latent_site())
    large, small = (backend.fixed_plan(StepShape(rows, rows, 1, 64)) for rows in (4, 2))
    assert large.pieces[0].places.data_ptr() == small.pieces[0].places.data_ptr()


@pytest.mark.covers("ATTN-06")
def test_tokens_of_a_model_with_latents_are_those_of_the_reference(plugins, calls, latents):
    plugins("fake_device", "libraries")
    platform = same_tokens(latents, "seam_aiter")
    assert platform.graphs.replayed and platform.queue().waits == 0 and {"latents 16", "latents 1"} == set(calls)


def test_a_plan_for_graphs(calls):
    backend = import_module("core_plugin_aiter.attention").AiterAttention(context(16))
    same_as_reference(backend, site_of(), ROWS["tokens"], 16, fixed=True)


@pytest.mark.covers("ATTN-06")
def test_a_tiny_llama_s_tokens_are_those_of_the_reference(plugins, calls, llama):
    plugins("fake_device", "libraries")
    platform = same_tokens(llama, "seam_aiter")
    assert platform.graphs.replayed and platform.queue().waits == 0 and {"tokens", "prompts"} == set(calls)


@pytest.mark.covers("ATTN-06")
@pytest.mark.parametrize(
    ("arch", "attends", "multiplies", "preferred"),
    [
        ("gfx942", True, True, True),
        ("gfx950", True, True, True),
        ("gfx90a", True, False, False),
        ("gfx1100", False, False, False),
        ("", False, False, False),
    ],
)
def test_what_it_is_able_to_do_is_not_where_it_is_used(arch, attends, multiplies, preferred):
    probe = ProbeResult(available=True, facts={"arch": arch} if arch else {})
    shape = {"head_dim": 64, "num_heads": 4, "num_kv_heads": 2, "block_size": 16}
    request = AttentionRequest(device_type="cuda", dtype="bfloat16", kv_dtype="bfloat16", **shape)
    assert fits.attention(request, probe).ok == attends and request.check(AITER).ok
    assert fits.products(KernelRequest(op="linear", device="cuda", dtype="bfloat16"), probe).ok == multiplies
    points = points_of("core_plugin_rocm", arch)
    names = [f"core.attention_backends:{name}" for name in ("aiter", "triton")]
    assert (points.get(names[0], 0) > points.get(names[1], 0)) == preferred
    assert not fits.attention(request.replace(block_size=64), probe).ok


LATENT = {"head_dim": 192, "num_heads": 128, "num_kv_heads": 128, "features": {"latent"}, "latents": {(512, 64)}}


@pytest.mark.covers("ATTN-06")
@pytest.mark.parametrize(
    ("asked", "arch", "why"),
    [
        ({}, "gfx942", None),
        ({"block_size": 64, "num_heads": 20}, "gfx950", None),
        ({}, "gfx90a", "AITER is for gfx94?, gfx950, the card is gfx90a"),
        ({"num_heads": 129}, "gfx942", "at most 128 heads, the model has 129"),
        ({"latents": {(256, 32)}}, "gfx942", "not of 256 and 32"),
        ({"dtype": "float16", "kv_dtype": "float16"}, "gfx942", "computes in bfloat16, not in float16"),
        ({"features": frozenset(), "latents": frozenset()}, "gfx942", "heads of 192 are for latent attention alone"),
    ],
)
def test_what_there_are_no_kernels_for_is_refused_by_name(asked, arch, why):
    given = {"dtype": "bfloat16", "kv_dtype": "bfloat16", "block_size": 16, **LATENT, **asked}
    request = AttentionRequest(device_type="cuda", **given)
    verdict = fits.attention(request, ProbeResult(available=True, facts={"arch": arch}))
    assert request.check(AITER).ok and verdict.ok == (why is None)
    assert why is None or why in verdict.reasons[0]


@pytest.mark.parametrize(("heads", "due"), [(1, 16), (16, 16), (17, 128), (64, 128), (128, 128), (129, 0)])
def test_heads_are_filled_up_to_what_there_are_kernels_for(heads, due):
    assert fits.heads_of(heads) == due


def linear(kind, parts, bias):
    site = LayerSite("linear", "layer", K, parts, bias=bias)
    place = ProductPlace(site, (FORMS[kind],) * len(parts), torch.device("cpu"), torch.bfloat16, "fp8")
    return import_module(f"core_plugin_aiter.{kind}").Linear(place, {}), ReferenceProduct(place, {})


def filled(product, parts):
    params = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in product.sizes().items()}
    for index, part in enumerate(parts):
        product.pack(part, index, params)
    return product.finish(params)


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("parts", [(("", 192),), (("q", 192), ("k", 64), ("v", 64))], ids=["one", "three"])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_layers(calls, kind, parts, bias):
    product, reference = linear(kind, parts, bias)
    rng = torch.Generator().manual_seed(4)
    given = [random_part(FORMS[kind], rows, K, rng, bias=bias) for _, rows in parts]
    params, x = filled(product, given), torch.randn(7, K, generator=rng).bfloat16()
    found, due = product.apply(x, params).float(), reference.apply(x, filled(reference, given)).float()
    assert (found - due).norm() / due.norm() < 0.006
    assert product.apply(x[:0], params).shape == (0, sum(rows for _, rows in parts))


@pytest.mark.parametrize("kind", FORMS)
def test_plain_numbers_of_an_update_are_rounded(calls, kind):
    product, _ = linear(kind, (("", 192),), False)
    values, x = torch.randn(192, K), torch.randn(3, K).bfloat16()
    found, due = product.apply(x, filled(product, [plain_part(values)])).float(), x.float() @ values.T
    assert (found - due).norm() / due.norm() < 0.06


def test_the_other_float8_has_the_same_values():
    codes = torch.arange(256, dtype=torch.uint8)
    codes = codes[(codes & 0x7F) != 0x7F].view(torch.float8_e4m3fn)
    half, scales = converted(codes, torch.ones(1), torch.float8_e4m3fnuz)
    assert torch.equal(half.float() * scales, codes.float())


def test_a_card_with_the_other_float8(calls, monkeypatch):
    blocks = import_module("core_plugin_aiter.blocks")
    monkeypatch.setattr(blocks, "format_of", lambda device: torch.float8_e4m3fnuz)
    product, reference = linear("blocks", (("", 192),), False)
    given = [random_part(FORMS["blocks"], 192, K, torch.Generator().manual_seed(6))]
    x = torch.randn(5, K, generator=torch.Generator().manual_seed(7)).bfloat16()
    found, due = product.apply(x, filled(product, given)).float(), reference.apply(x, filled(reference, given)).float()
    assert (found - due).norm() / due.norm() < 0.04  # activations have other steps


def test_forms():
    request = KernelRequest(op="linear", device="cuda", dtype="bfloat16", dims={"inputs": 512, "outputs": 192})
    assert (FORMS["blocks"].key, FORMS["rows"].key) == (BLOCKS, BY_ROW)
    assert LINEAR.check(request.replace(form=BLOCKS)).ok and INT8_LINEAR.check(request.replace(form=BY_ROW)).ok
    assert not LINEAR.check(request.replace(form=BY_ROW)).ok
