"""The conformance kit over the operations, in the interpreter: all of it in `make test-all`, one here."""

import pytest
from core_plugin_kernels_triton.ops import spec

from core.api.descriptors import KernelSpec
from core_testing.conformance import Level, run

KERNELS = sorted(one.name for one in vars(spec).values() if isinstance(one, KernelSpec))


@pytest.fixture
def small_tiles():
    """The kit has large arguments: tiles are those of the interpreter's table."""


def failures(name):
    (report,) = run(name, level=Level.L1).plugins
    assert {one.status for one in report.outcomes} <= {"passed", "skipped", "failed"}
    return {one.check: one.message for one in report.failures}


def test_a_product_passes():
    assert failures("triton_lookup") == {}


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_passes(name):
    assert failures(name) == {}
