"""Shared by the tests of the native kernels."""

import pytest
import torch
from core_plugin_cpu.native import library

LEVELS = ("base", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx")


@pytest.fixture(autouse=True)
def same_numbers():
    """Random inputs are the same in every run: bounds on errors are measured with them, and do not hold for any."""
    torch.manual_seed(0)


@pytest.fixture(params=LEVELS)
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
