"""The conformance kit over the products, in the interpreter: in `make test-all`."""

import pytest

from core_testing.conformance import Level, run


@pytest.fixture
def small_tiles():
    """The kit has large arguments: tiles are those of the interpreter's table."""


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["triton_linear", "triton_stored_lookup"])
def test_a_product_passes(name):
    (report,) = run(name, level=Level.L1).plugins
    assert sum(one.status == "passed" for one in report.outcomes) >= 12, [
        (one.check, one.status, one.message) for one in report.outcomes
    ]
    assert {one.check: one.message for one in report.failures} == {}
