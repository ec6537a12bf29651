"""FlashInfer: a stand-in of the library that refuses what its documentation does not allow."""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
from core_plugin_flashinfer.fits import fits
from core_plugin_flashinfer.step import pages_of
from core_plugin_flashinfer.wrappers import Fenced, Turns

from core.api.descriptors import AttentionRequest
from core.api.verdict import ProbeResult
from tests.seams.libraries import flashinfer
from tests.seams.libraries.engines import same_tokens
from tests.seams.libraries.steps import ROWS, context, run, same_as_reference, site_of, step_of

SMALL = {"workspace_mib": 1}


@pytest.fixture
def wrappers(monkeypatch):
    """The wrappers that are made with the stand-in; none of the plugin's modules that knows another one."""
    monkeypatch.delitem(sys.modules, "core_plugin_flashinfer.backend", raising=False)
    yield flashinfer.install(monkeypatch)
    sys.modules.pop("core_plugin_flashinfer.backend", None)


def backend_of(size=16, **options):
    made = import_module("core_plugin_flashinfer.backend").FlashInferBackend
    return made(context(size, options={**SMALL, **options}))


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("extra", [{}, {"window": 5}, {"softcap": 3.0}, {"group": 4}], ids=str)
def test_steps_are_those_of_the_reference_and_nothing_strange_is_read(wrappers, rows, extra):
    same_as_reference(backend_of(), site_of(**extra), ROWS[rows], 16)
    assert all(one.plans == 1 for one in wrappers) and len(wrappers) == (rows != "none")


def test_a_plan_for_graphs_has_a_wrapper_of_its_own(wrappers):
    same_as_reference(backend_of(), site_of(), ROWS["tokens"], 16, fixed=True)
    (fixed,) = wrappers
    assert fixed._graph and fixed.plans == 1


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
