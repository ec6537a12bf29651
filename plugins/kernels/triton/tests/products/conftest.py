"""Small tiles, so that small weights have several."""

import pytest
import torch

SMALL = {
    "least": 16,
    "few": {
        "rows": 4,
        "m": 16,
        "n": 32,
        "k": 64,
        "k8": 128,
        "warps": 4,
        "stages": 1,
        "programs": 8,
        "splits": 3,
        "steps": 1,
    },
    "many": {"m": 16, "n": 64, "k": 64, "k8": 128, "warps": 4, "stages": 1},
    "scaled": {"m": 16, "n": 64, "k": 64, "k8": 128, "warps": 4, "stages": 1},
    "merge": {"n": 64, "warps": 4},
    "lookup": {"n": 4, "k": 64, "warps": 4},
}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Let kernels have tiles that are smaller than the weights of these tests."""
    from core_plugin_kernels_triton.products.tiles import tiles

    for kernel, sizes in SMALL.items():
        monkeypatch.setitem(tiles(torch.device("cpu")), kernel, sizes)
