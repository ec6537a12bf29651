"""FlashMLA: a stand-in of the library that refuses what its sources do not allow."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest
from core_plugin_accelerator import points_of
from core_plugin_flashmla.fits import fits
from core_plugin_flashmla.manifest import FLASHMLA

from core.api.descriptors import AttentionRequest
from core.api.errors import PluginError
from core.api.verdict import ProbeResult
from tests.seams.libraries import flashmla
from tests.seams.libraries.engines import same_tokens
from tests.seams.libraries.latents import latent_site, same_latents
from tests.seams.libraries.steps import ROWS, context, site_of, step_of

OWN = [f"core_plugin_flashmla.{name}" for name in ("backend", "plan")]


@pytest.fixture(params=[False, True], ids=["of 2025", "of 2026"])
def calls(monkeypatch, request):
    for name in OWN:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield flashmla.install(monkeypatch, late=request.param, page=16)
    for name in OWN:
        sys.modules.pop(name, None)


def made():
    return import_module("core_plugin_flashmla.backend").FlashMlaBackend


@pytest.mark.covers("ATTN-09")
@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_latents_are_attended_as_by_definition(calls, rows):
    same_latents(made(), ROWS[rows])
    tokens = sum(new for _, new in ROWS[rows])
    assert calls == ([tokens] if tokens else [])


def test_long_steps_are_computed_in_pieces(calls, monkeypatch):
    make = made()
    monkeypatch.setattr("core_plugin_flashmla.plan.MOST_ROWS", 8)
    same_latents(make, ROWS["pieces"])
    assert calls == [8, 8, 8, 4]


def test_a_plan_for_graphs(calls):
    same_latents(made(), ROWS["tokens"], fixed=True)


def test_the_first_layer_divides_the_work_of_a_graph_for_all_of_its_heads(calls):
    backend = made()(context(16))
    sites = [latent_site(4), latent_site(4), latent_site(2)]
    for number in (2, 0, 1):
        object.__setattr__(sites[number], "layer", number)
        backend.latent(sites[number])
    assert backend._first == {4: 0, 2: 2}
    batch = step_of(ROWS["tokens"], site_of(), 16).batch
    (piece,) = backend.plan(batch).pieces
    first = piece.divided(4, anew=False)
    assert piece.divided(4, anew=False) is first and piece.divided(4, anew=True) is not first


@pytest.mark.covers("ATTN-09")
def test_tokens_of_a_model_with_latents_are_those_of_the_reference(plugins, calls, latents):
    plugins("fake_device", "libraries")
    assert same_tokens(latents, "seam_flashmla").graphs.replayed and calls


def test_layers_that_keep_keys_and_values_are_refused(calls):
    with pytest.raises(PluginError, match=r"CORE-P203.*latent attention alone"):
        made()(context(16)).layer(site_of())


LATENT = {"head_dim": 192, "num_heads": 128, "num_kv_heads": 128, "features": {"latent"}, "latents": {(512, 64)}}


@pytest.mark.covers("ATTN-09")
@pytest.mark.parametrize(
    ("asked", "capability", "arch", "why"),
    [
        ({}, (9, 0), "", None),
        ({"num_heads": 16}, (9, 0), "", None),
        ({}, (8, 0), "", "compute capability 9.0, the card has 8.0"),
        ({}, (10, 0), "", "compute capability 9.0, the card has 10.0"),
        ({}, (), "gfx942", "not for gfx942"),
        ({"num_heads": 129}, (9, 0), "", "at most 128 heads, the model has 129"),
        ({"latents": {(256, 32)}}, (9, 0), "", "not of 256 and 32"),
        ({"block_size": 128}, (9, 0), "", "--block-size 64"),
        ({"kv_dtype": "float16"}, (9, 0), "", "reads no float16 cache"),
        ({"features": frozenset(), "latents": frozenset()}, (9, 0), "", "latent attention alone"),
    ],
)
def test_what_it_is_not_for_is_refused_by_name(asked, capability, arch, why):
    given = {"kv_dtype": "bfloat16", "block_size": 64, **LATENT, **asked}
    request = AttentionRequest(device_type="cuda", dtype="bfloat16", **given)
    probe = ProbeResult(available=True, capability=capability, facts={"arch": arch} if arch else {})
    verdict = fits(request, probe)
    assert request.check(FLASHMLA).ok and verdict.ok == (why is None)
    assert why is None or why in verdict.reasons[0]


@pytest.mark.covers("ATTN-09", "ATTN-10")
def test_picks_and_other_blocks_are_refused_by_the_descriptor():
    request = AttentionRequest(device_type="cuda", dtype="bfloat16", kv_dtype="bfloat16", block_size=64, **LATENT)
    assert request.replace(features={"latent", "picks"}).check(FLASHMLA).reasons == ("lacks picks",)
    assert request.replace(block_size=16).check(FLASHMLA).reasons == ("block size 16 is not a multiple of 64",)


def test_hopper_prefers_it():
    points = points_of("core_plugin_cuda", "9.0")
    assert points["core.attention_backends:flashmla"] > points["core.attention_backends:triton"]
    assert not [name for name in points_of("core_plugin_cuda", "10.0") if "mla" in name]
