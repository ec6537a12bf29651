"""The conformance kit over routing and experts' products, in the interpreter, with the tiles of its table."""

import pytest

from core.testing.conformance import Level, run


@pytest.fixture
def small_tiles():
    """The kit has large arguments: tiles are those of the interpreter's table."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["triton_route", "triton_experts_in", "triton_experts_out"])
def test_a_kernel_passes(name):
    (report,) = run(name, level=Level.L1).plugins
    assert {one.check: one.message for one in report.failures} == {}
