"""Each kernel check finds the kernel that is wrong in its way, and only that check does."""

from __future__ import annotations

import pytest

from core.api.kernels import PRODUCTS
from core.ops.registry import REGISTRY
from core_testing.conformance import Level
from core_testing.conformance.tools.ops import SHAPES

MANIFEST = """
from core.api import DimRule, KernelSpec

SPEC = KernelSpec(
    name="broken", impl="PKG.kernel:kernel", api=1, summary="s", op="{op}", devices=frozenset({{"cpu"}}),
    dtypes=frozenset({{"float32", "bfloat16"}}), dims={dims},
)
"""

KERNEL = """
import itertools
import torch
from torch.nn import functional

CALLS, OUTPUTS = itertools.count(), {}

def plain(x):
    return x.untyped_storage().nbytes() == x.nbytes

def end(x):
    return x.storage_offset() + x.numel()

def kernel(x, weight, eps):
    {before}
    out = functional.rms_norm(x, weight.shape, weight, eps)
    {after}
    return out
"""

CASES = {
    "declared_sizes_exist": {"dims": "{'hidden': DimRule(multiple_of=8)}"},
    "generated_sizes_match_reference": {"after": "if len(x) == 61 and plain(x) and x.dtype == torch.float32: out *= 2"},
    "every_dtype_matches_reference": {"after": "if len(x) == 61 and x.dtype == torch.bfloat16: out = out * 1.03"},
    "any_number_of_rows_matches_reference": {"after": "if len(x) == 1031: out[1024:] = 0"},
    "slices_match_reference": {"after": "if not x.is_contiguous(): out = out.flip(0)"},
    "special_values_match_reference": {"after": "out = out.nan_to_num(0.0)"},
    "stays_inside_its_tensors": {
        "after": "if not plain(x) and x.is_contiguous(): x.as_strided((1,), (1,), end(x)).fill_(1)"
    },
    "outputs_are_its_own": {"after": "out = OUTPUTS.setdefault((out.shape, out.dtype), out).copy_(out)"},
    "equal_inputs_give_equal_bits": {"after": "if len(x) == 33 and next(CALLS) % 3: out = out * (1 + 2e-7)"},
    "rows_do_not_see_each_other": {"after": "if len(x) == 40: out = out + 1e-4"},
}


@pytest.fixture
def kernel(make_plugin):
    def make(
        op: str = "rms_norm", *, dims: str = "{}", before: str = "pass", after: str = "pass", source: str = KERNEL
    ):
        source = source.replace("{before}", before).replace("{after}", after)
        return make_plugin("core.kernels", {"manifest": MANIFEST.format(op=op, dims=dims), "kernel": source})

    return make


def test_a_sound_kernel_passes(kernel):
    report = kernel(dims="{'size': DimRule(least=3, most=9000, multiple_of=4)}").report("kernels")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize("check", CASES)
def test_kernels(kernel, check):
    assert set(kernel(**CASES[check]).failing("kernels")) == {check}


def test_a_slow_kernel_is_not_faster_than_the_reference(kernel):
    made = kernel(before="import time; time.sleep(0.005)")
    (outcome,) = made.report(level=Level.L3, checks=("faster_than_reference",)).outcomes
    assert outcome.status == "failed" and "the speed of the reference form" in outcome.message


def test_the_smallest_size_that_fails_is_named(kernel):
    failing = kernel(after="if x.shape[-1] % 16: out = out.roll(1)").failing("kernels")
    assert "'size': 1, 'heads': 0, 'rows': 2" in failing["generated_sizes_match_reference"]


@pytest.mark.parametrize(
    "body",
    ["x.zero_()", "weight *= 1 + 1e-6", "out = [out, out]", "out = out.double()", "out = out[..., :1]", "out = 5"],
)
def test_other_outcomes_than_the_references_are_caught(kernel, body):
    assert "generated_sizes_match_reference" in kernel(after=body).failing("kernels")


IN_PLACE = """
from core.ops import add_rms_norm

def kernel(x, residual, weight, eps):
    out, total = add_rms_norm(x, residual, weight, eps)
    return {answer}
"""


@pytest.mark.parametrize("answer", ["out, residual.copy_(total)", "out, total.copy_(out)[:] if False else out"])
def test_shared_memory_is_caught(kernel, answer):
    made = kernel("add_rms_norm", source=IN_PLACE.replace("{answer}", answer))
    assert "outputs_are_its_own" in made.failing("kernels")


def test_an_operation_that_core_lacks_needs_its_reference_form(kernel):
    told = [one.message for one in kernel("sms_norm").report("kernels").failures]
    assert told and all("reference: sms_norm is no operation of core" in one for one in told)


def test_sizes_that_nothing_has_are_caught(kernel):
    failing = kernel(dims="{'size': DimRule(least=9, most=10, multiple_of=8)}").failing("kernels")
    assert "dims allow no size at all" in failing["declared_sizes_exist"]


def test_an_operation_without_a_generator_is_named(kernel, monkeypatch):
    monkeypatch.setattr("core_testing.conformance.tools.kernel_bench.SHAPES", {})
    report = kernel().report("kernels")
    assert {one.status for one in report.outcomes} == {"unavailable"}
    assert "the kit cannot make arguments for rms_norm: add a KernelSample" in report.outcomes[0].message


def test_every_operation_of_core_has_a_generator():
    missing = set(REGISTRY) - PRODUCTS - set(SHAPES)
    assert not missing, "add these to SHAPES in plugins/commands/testing/src/core_testing/conformance/tools/ops.py"


@pytest.mark.parametrize("op", sorted(SHAPES))
def test_the_reference_form_is_a_sound_kernel(make_plugin, op):
    source = f"from core.ops.registry import REGISTRY\n\nkernel = REGISTRY[{op!r}].reference\n"
    made = make_plugin("core.kernels", {"manifest": MANIFEST.format(op=op, dims="{}"), "kernel": source})
    assert made.failing("kernels") == {}


DRAWS = {
    "out of the vocabulary": "out + logits.shape[-1]",
    "the next token": "(out + 1) % logits.shape[-1]",
    "the most likely": "logits.argmax(-1) if rows is None else logits[rows].argmax(-1)",
}


@pytest.mark.parametrize("wrong", DRAWS)
def test_draws_are_held_to_the_distribution(make_plugin, wrong):
    source = (
        "from core.ops import draw\n\n\ndef kernel(logits, rows, numbers, *, truncated):\n"
        f"    out = draw(logits, rows, numbers, truncated=truncated)\n    return {DRAWS[wrong]}\n"
    )
    made = make_plugin("core.kernels", {"manifest": MANIFEST.format(op="draw", dims="{}"), "kernel": source})
    assert "generated_sizes_match_reference" in made.failing("kernels")
