"""Shared by the tests of the native kernels."""

import pytest
import torch
from core_plugin_cpu.native import library

LEVELS = ("base", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx")
PRODUCTS = ("experts", "float_weights", "fusion", "gemm", "products")
"""What tests of products are named by. Nothing else has kernels for `avx_vnni`: there it is `avx2`."""


def pytest_generate_tests(metafunc):
    """Every instruction set for which what is tested has kernels of its own."""
    if "isa" in metafunc.fixturenames:
        products = metafunc.module.__name__.endswith(PRODUCTS)
        metafunc.parametrize("isa", [one for one in LEVELS if products or one != "avx_vnni"], indirect=True)


@pytest.fixture(autouse=True)
def same_numbers():
    """Random inputs are the same in every run: bounds on errors are measured with them, and do not hold for any."""
    torch.manual_seed(0)


@pytest.fixture
def isa(request):
    """Every instruction set of this machine, one after the other; the usual one is in use again afterwards."""
    if not library.available():
        pytest.skip(f"no native library: {library.reason()}")
    usual = library.isa()
    try:
        library.select_isa(request.param)
    except ValueError as error:
        pytest.skip(str(error))
    yield request.param
    library.select_isa(usual)
