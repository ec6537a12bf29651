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
from core.api.verdict import ProbeResult
from core.ops.products import ReferenceProduct
from core.testing.conformance.tools.parts import plain_part, random_part
from tests.seams.libraries import aiter
from tests.seams.libraries.engines import same_tokens
from tests.seams.libraries.steps import ROWS, context, same_as_reference, site_of

MODULES = [f"core_plugin_aiter.{name}" for name in ("attention", "blocks", "rows")]
K = 256
FORMS = {
    "blocks": WeightForm(codes="float8_e4m3fn", outputs=128, inputs=128, activations="float8:128"),
    "rows": WeightForm(codes="int", bits=8, activations="int8:token"),
}


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
