"""The conformance kit over routing and experts' products, in the interpreter, with the tiles of its table."""

import pytest

from core_testing.conformance import Level, run

STORED = ("triton_stored_experts_in", "triton_stored_experts_out")


@pytest.fixture
def small_tiles():
    """The kit has large arguments: tiles are those of the interpreter's table."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["triton_route", "triton_experts_in", "triton_experts_out", *STORED])
@pytest.mark.timeout(1800)
def test_a_kernel_passes(name):
    (report,) = run(name, level=Level.L1).plugins
    assert {one.check: one.message for one in report.failures} == {}
