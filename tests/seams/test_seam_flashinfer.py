"""FlashInfer: a stand-in of the library that refuses what its documentation does not allow."""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from core_plugin_flashinfer.fits import fits
from core_plugin_flashinfer.manifest import FLASHINFER
from core_plugin_flashinfer.step import pages_of
from core_plugin_flashinfer.wrappers import Fenced, Turns

from core.api.descriptors import AttentionRequest
from core.api.errors import ConfigError
from core.api.verdict import ProbeResult
from tests.seams.libraries import flashinfer
from tests.seams.libraries.engines import same_tokens
from tests.seams.libraries.latents import latent_site, same_latents
from tests.seams.libraries.steps import ROWS, context, run, same_as_reference, site_of, step_of

SMALL = {"workspace_mib": 1}
OWN = [f"core_plugin_flashinfer.{name}" for name in ("backend", "planning", "latent")]


@pytest.fixture
def wrappers(monkeypatch):
    """The wrappers that are made with the stand-in; none of the plugin's modules that knows another one."""
    for name in OWN:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield flashinfer.install(monkeypatch)
    for name in OWN:
        sys.modules.pop(name, None)


def made():
    return import_module("core_plugin_flashinfer.backend").FlashInferBackend


def backend_of(size=16, **options):
    return made()(context(size, options={**SMALL, **options}))


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("extra", [{}, {"window": 5}, {"softcap": 3.0}, {"group": 4}], ids=str)
def test_steps_are_those_of_the_reference_and_nothing_strange_is_read(wrappers, rows, extra):
    same_as_reference(backend_of(), site_of(**extra), ROWS[rows], 16)
    assert all(one.plans == 1 for one in wrappers) and len(wrappers) == (rows != "none")


def test_a_plan_for_graphs_has_a_wrapper_of_its_own(wrappers):
    same_as_reference(backend_of(), site_of(), ROWS["tokens"], 16, fixed=True)
    (fixed,) = wrappers
    assert fixed._graph and fixed.plans == 1


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("window", [None, 5])
def test_sinks(wrappers, rows, window):
    site = site_of(sinks=True, window=window)
    same_as_reference(backend_of(), site, ROWS[rows], 16, sinks=torch.linspace(-1, 1, 6))
    assert {one.backend for one in wrappers} == {"none": set(), "tokens": {"fa2"}, "one": {"fa2"}}.get(rows, {"auto"})


def test_a_plan_for_graphs_with_sinks(wrappers):
    site = site_of(sinks=True, window=5)
    same_as_reference(backend_of(), site, ROWS["tokens"], 16, sinks=torch.linspace(-1, 1, 6), fixed=True)


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("heads", [4, 128])
def test_latents_are_attended_as_by_definition(wrappers, rows, heads):
    same_latents(made(), ROWS[rows], site=latent_site(heads), options=SMALL)
    assert len(wrappers) == (rows != "none")


def test_a_plan_for_graphs_of_latents(wrappers):
    backend = same_latents(made(), ROWS["tokens"], fixed=True, options=SMALL)
    (fixed,) = wrappers
    assert fixed.plans == 1 and fixed.workspace is backend._workspace()


def test_latents_of_a_step_that_is_too_large_for_a_plan_say_what_to_set(wrappers):
    make = import_module("core_plugin_flashinfer.latent")
    assert make.tiles_of(np.array([0, 1, 2], dtype=np.int32), 16) == 2
    assert make.tiles_of(np.array([0, 100]), 128) == 100
    backend = made()(context(16, options=SMALL))
    backend.latent(latent_site(128))
    batch = step_of([(0, 16000)], site_of(), 16).batch
    with pytest.raises(ValueError, match="--max-num-batched-tokens to at most 15872"):
        backend.plan(batch)


def test_latents_cannot_do_without_splits(wrappers):
    with pytest.raises(ConfigError, match=r"CORE-C111.*splits") as refused:
        made()(context(16, options={**SMALL, "splits": False})).latent(latent_site())
    assert "triton" in refused.value.hint


def test_one_workspace_for_all_and_two_wrappers_of_each_kind(wrappers):
    backend = backend_of()
    site = site_of(window=5)
    for _ in range(5):
        step = step_of(ROWS["tokens"], site, 16)
        run(backend, site, step, step.poisoned)
    assert [one.plans for one in wrappers] == [3, 2]
    backend.fixed_plan(SimpleNamespace(num_rows=2, max_seq_len=64))
    assert len({one.workspace.data_ptr() for one in wrappers}) == 1


def test_without_splits(wrappers):
    step = step_of(ROWS["tokens"], site_of(), 16)
    run(backend_of(splits=False), site_of(), step, step.poisoned)
    assert wrappers[0].named["disable_split_kv"]


def test_a_float8_cache_has_a_scale_for_keys_and_one_for_values(wrappers):
    site, step = site_of(), step_of([(0, 9), (0, 1)], site_of(), 16)
    backend = import_module("core_plugin_flashinfer.backend").FlashInferBackend(
        context(16, options=SMALL, kv_dtype=torch.float8_e4m3fn)
    )
    layer = backend.layer(site)
    layer.use_scales(torch.tensor(0.5), torch.tensor(0.25))
    cache = torch.zeros(step.clean.shape, dtype=torch.float8_e4m3fn)
    plan = backend.plan(step.batch)
    layer.write_kv(step.k, step.v * 0.5, cache, plan)
    found = layer.forward(step.q, cache, plan)
    exact = step_of([(0, 9), (0, 1)], site, 16)
    exact.k, exact.v = (
        (step.k / 0.5).to(torch.float8_e4m3fn).float() * 0.5,
        ((step.v * 0.5 / 0.25).to(torch.float8_e4m3fn).float() * 0.25),
    )
    from core_plugin_torch_sdpa.backend import TorchSdpaBackend

    due = run(TorchSdpaBackend(context(16)), site, exact, exact.clean)
    torch.testing.assert_close(found, due, atol=1e-5, rtol=1e-4)


def test_a_wrapper_is_planned_again_only_when_its_last_plan_was_uploaded():
    told = []
    event = SimpleNamespace(record=lambda: told.append("record"), synchronize=lambda: told.append("wait"))
    fenced = Fenced(SimpleNamespace(plan=lambda: told.append("plan")), torch.device("cpu"))
    fenced._module = SimpleNamespace(Event=lambda: event)
    fenced.plan()
    fenced.plan()
    assert told == ["plan", "record", "wait", "plan", "record"]


def test_turns():
    made = []

    def make():
        made.append(SimpleNamespace(planned=[]))
        made[-1].plan = made[-1].planned.append
        return made[-1]

    turns = Turns(make, torch.device("cpu"))
    for number in range(5):
        turns.plan((number,), {})
    assert [one.planned for one in made] == [[0, 2, 4], [1, 3]]


def test_pages_of_rows_of_every_length():
    tables = torch.arange(20, dtype=torch.int32).view(4, 5)
    lengths = torch.tensor([1, 0, 16, 33], dtype=torch.int32)
    found = pages_of(tables, lengths, lengths.numpy(), 16)
    assert found.starts.tolist() == [0, 1, 1, 2, 5] and found.places.tolist() == [0, 10, 15, 16, 17]
    assert found.last.tolist() == [1, 0, 16, 1]


@pytest.mark.covers("ATTN-05")
def test_a_tiny_llama_s_tokens_are_those_of_the_reference(plugins, wrappers, llama):
    plugins("fake_device", "libraries")
    platform = same_tokens(llama, "seam_flashinfer", plugin_options={"seam_flashinfer": SMALL})
    assert platform.graphs.replayed and platform.queue().waits == 0 and wrappers


@pytest.mark.covers("ATTN-08")
def test_tokens_of_a_model_with_latents_are_those_of_the_reference(plugins, wrappers, latents):
    plugins("fake_device", "libraries")
    platform = same_tokens(latents, "seam_flashinfer", plugin_options={"seam_flashinfer": SMALL})
    assert platform.graphs.replayed and platform.queue().waits == 0
    assert {type(one).__name__ for one in wrappers} == {"BatchMLAPagedAttentionWrapper"}


@pytest.mark.exhaustive
def test_tokens_of_a_model_with_sinks_are_those_of_the_reference(plugins, wrappers, sinks):
    plugins("fake_device", "libraries")
    same_tokens(sinks, "seam_flashinfer", plugin_options={"seam_flashinfer": SMALL})
    assert {one.sinks for one in wrappers} == {True}


@pytest.mark.exhaustive
def test_windows(plugins, wrappers, windowed):
    plugins("fake_device", "libraries")
    assert same_tokens(windowed, "seam_flashinfer", plugin_options={"seam_flashinfer": SMALL}).graphs.replayed


@pytest.mark.parametrize(
    ("capability", "arch", "why"),
    [((7, 5), "", "8.0 or more, the card has 7.5"), ((8, 0), "", None), ((10, 0), "", None), ((), "gfx90a", "gfx90a")],
)
def test_cards(capability, arch, why):
    shape = {"head_dim": 64, "num_heads": 4, "num_kv_heads": 2, "block_size": 16}
    request = AttentionRequest(device_type="cuda", dtype="bfloat16", kv_dtype="bfloat16", **shape)
    verdict = fits(request, ProbeResult(available=True, capability=capability, facts={"arch": arch} if arch else {}))
    assert verdict.ok == (why is None) and (why is None or why in verdict.reasons[0])


LATENT = {"head_dim": 192, "num_heads": 128, "num_kv_heads": 128, "features": {"latent"}, "latents": {(512, 64)}}


@pytest.mark.covers("ATTN-01")
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"head_dim": 64, "features": {"sinks", "sliding_window"}}, None),
        ({"head_dim": 64, "features": {"sinks", "softcap"}}, "sinks have no soft cap"),
        ({"head_dim": 64, "features": {"sinks"}, "kv_dtype": "float8_e4m3fn"}, "sinks read no float8_e4m3fn cache"),
        ({"head_dim": 192}, "heads of 192 are for latent attention alone"),
        (LATENT, None),
        ({**LATENT, "num_heads": 16}, None),
        ({**LATENT, "latents": {(256, 32)}}, "512 and 64 numbers, not of 256 and 32"),
        ({**LATENT, "num_heads": 96}, "cut those of 96 heads"),
        ({**LATENT, "num_heads": 256}, "cut those of 256 heads"),
        ({**LATENT, "kv_dtype": "float8_e4m3fn"}, "latent attention reads no float8_e4m3fn cache"),
    ],
)
def test_what_its_kernels_do_not_compute_is_refused_by_name(asked, why):
    given = {"num_heads": 32, "num_kv_heads": 8, "kv_dtype": "bfloat16", **asked}
    request = AttentionRequest(device_type="cuda", dtype="bfloat16", block_size=16, **given)
    verdict = fits(request, ProbeResult(available=True, capability=(9, 0)))
    assert request.check(FLASHINFER).ok and verdict.ok == (why is None)
    assert why is None or why in verdict.reasons[0]


def test_other_features_are_refused_by_the_descriptor():
    request = AttentionRequest(device_type="cuda", dtype="bfloat16", kv_dtype="bfloat16", block_size=16, **LATENT)
    assert request.replace(features={"latent", "picks"}).check(FLASHINFER).reasons == ("lacks picks",)
