"""Small tiles, so that small arguments have several."""

import pytest
import torch

SMALL = {
    "route": {"tile": 16, "lane": 1},
    "sort": {"block": 8, "tile": 32},
    "multiply": {"m": 16, "n": 16, "k": 16, "warps": 1, "stages": 1},
    "stored": {"m": 16, "n": 32, "k": 128, "k8": 128, "warps": 1, "stages": 1},
    "scaled": {"m": 16, "n": 32, "k": 128, "k8": 128, "warps": 1, "stages": 1},
    "total": {"tile": 64, "lane": 1},
}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Let kernels have tiles that are smaller than the arguments of these tests."""
    from core_plugin_kernels_triton.experts.tiles import tiles

    for kernel, sizes in SMALL.items():
        monkeypatch.setitem(tiles(torch.device("cpu")), kernel, sizes)
