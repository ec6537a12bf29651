"""The conformance kit over recurrences, in the interpreter, with the tiles of its table."""

import pytest

from core_testing.conformance import Level, run


@pytest.mark.exhaustive
@pytest.mark.parametrize("op", ["causal_conv", "linear_attention", "selective_scan", "gated_recurrence"])
def test_a_kernel_passes(op):
    (report,) = run(f"triton_{op}", level=Level.L1).plugins
    assert {one.check: one.message for one in report.failures} == {}
