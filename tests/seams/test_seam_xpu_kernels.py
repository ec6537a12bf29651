"""vllm-xpu-kernels: a stand-in of the library that refuses what its source does not allow."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest
import torch
from core_plugin_xpu_kernels.manifest import XPU_KERNELS

from core.api.descriptors import AttentionRequest
from tests.seams.libraries import xpu_kernels
from tests.seams.libraries.engines import same_tokens
from tests.seams.libraries.steps import ROWS, context, same_as_reference, site_of

OWN = "core_plugin_xpu_kernels.attention"


@pytest.fixture
def windows(monkeypatch):
    monkeypatch.delitem(sys.modules, OWN, raising=False)
    yield xpu_kernels.install(monkeypatch)
    sys.modules.pop(OWN, None)


def backend():
    return import_module(OWN).XpuAttention(context(16))


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("extra", [{}, {"window": 5}, {"softcap": 3.0}], ids=str)
def test_steps_are_those_of_the_reference_and_nothing_strange_is_read(windows, rows, extra):
    same_as_reference(backend(), site_of(**extra), ROWS[rows], 16)
    assert set(windows) <= ({(4, 0)} if "window" in extra else {(-1, -1)})


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_sinks(windows, rows):
    same_as_reference(backend(), site_of(sinks=True), ROWS[rows], 16, sinks=torch.linspace(-1, 1, 6))


def test_a_plan_for_graphs(windows):
    same_as_reference(backend(), site_of(), ROWS["tokens"], 16, fixed=True)


@pytest.mark.covers("PLAT-03")
def test_a_tiny_llama_s_tokens_are_those_of_the_reference(plugins, windows, llama):
    plugins("fake_device", "libraries")
    platform = same_tokens(llama, "seam_xpu_kernels")
    assert platform.graphs.replayed and platform.queue().waits == 0 and windows


@pytest.mark.covers("PLAT-03")
def test_sparse_attention_is_refused(windows):
    shape = {"head_dim": 64, "num_heads": 4, "num_kv_heads": 2, "block_size": 16}
    request = AttentionRequest(device_type="xpu", dtype="bfloat16", kv_dtype="bfloat16", **shape)
    assert request.check(XPU_KERNELS).ok
    sparse = request.replace(features={"latent", "picks"}).check(XPU_KERNELS)
    assert sparse.reasons == ("lacks latent, picks",)
