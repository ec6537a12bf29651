"""Layers are given kernels while they are built, by size; what they compute stays the same."""

from __future__ import annotations

import pytest

from core import LLM, SamplingParams
from core.api import OPS, PluginError
from core.api.kernels import PRODUCTS
from core.layers.kernels import KernelTable, PlannedKernel
from core.ops import rms_norm
from core.ops.registry import REGISTRY

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
OPTIONS = {"dtype": "float32", "num_blocks": 60}


def test_the_registry_and_the_public_list_agree():
    assert set(REGISTRY) == OPS


def test_a_kernel_that_takes_the_sizes_is_bound_and_used(plugins, llama, prompt):
    plugins("kernels", "platform")  # on the toy platform no graph stands in for the layers' own calls
    options = {**OPTIONS, "platform": "graphbox"}
    with LLM(llama, **options, kernel=["rms_norm=reference", "silu_and_mul=reference"]) as llm:
        plain = llm.generate([prompt(9)], GREEDY)[0].outputs[0].token_ids
    with LLM(llama, **options, kernel=["rms_norm=counted_norm", "silu_and_mul=counted_silu"]) as llm:
        from seam_kernels.kernels import CALLS

        before, steps = dict(CALLS), llm.call("stats")["steps"]
        assert llm.generate([prompt(9)], GREEDY)[0].outputs[0].token_ids == plain
        steps = llm.call("stats")["steps"] - steps
        assert "rms_norm=counted_norm" in llm._engine.ready.facts["kernels"]
    # Three layers: one plain norm (the first; the others add a residual) and three activations in each step.
    assert CALLS["rms_norm"] - before["rms_norm"] == steps
    assert CALLS["silu_and_mul"] - before["silu_and_mul"] == 3 * steps


def test_the_reference_form_can_be_commanded(plugins, llama, prompt):
    plugins("kernels")
    with LLM(llama, **OPTIONS, kernel=["rms_norm=reference", "silu_and_mul=reference"]) as llm:
        chosen = [text.partition("=")[0] for text in llm._engine.ready.facts.get("kernels", "").split(", ")]
        assert "rms_norm" not in chosen and "silu_and_mul" not in chosen


def test_a_commanded_kernel_that_does_not_take_the_size_stops_the_start(plugins, llama):
    plugins("kernels")
    with pytest.raises(PluginError, match=r"CORE-P201 kernel 'wide_norm' .*size 64 is outside 4096 to any"):
        LLM(llama, **OPTIONS, kernel=["rms_norm=wide_norm"])


def test_the_first_kernel_that_takes_the_size_is_picked(plugins):
    plugins("kernels")
    from seam_kernels.manifest import NORM, WIDE

    planned = [PlannedKernel(spec, "seam-kernels 1.0", lambda spec=spec: spec.name) for spec in (WIDE, NORM)]
    table = KernelTable("cpu", "float32", planned)
    sizes = {4096: "wide_norm", 64: "counted_norm", 63: rms_norm, 8: rms_norm}
    assert {size: table.pick("rms_norm", size=size) for size in sizes} == sizes
    assert KernelTable("cpu", "bfloat16", planned).pick("rms_norm", size=64) is rms_norm
    assert table.describe() == "rms_norm=counted_norm/wide_norm"


def test_without_kernels_layers_get_the_reference_forms():
    table = KernelTable("cpu", "float32")
    assert all(table.pick(op) is spec.reference for op, spec in REGISTRY.items() if op not in PRODUCTS)
    assert table.describe() == ""
