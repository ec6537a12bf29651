"""Small tiles, so that small arguments have several, and arguments with strange memory around them."""

import pytest
import torch

SMALL = {
    "norm": {"tile": 64, "lane": 1},
    "activation": {"tile": 16, "lane": 1},
    "rotary": {"tile": 64, "lane": 1},
    "embedding": {"tile": 16, "lane": 1},
    "argmax": {"tile": 16, "section": 32, "lane": 1},
    "draw": {"tile": 64, "lane": 1},
    "logits": {"tile": 16, "lane": 1},
}
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Let kernels have tiles that are smaller than the arguments of these tests."""
    from core_plugin_kernels_triton.ops.tiles import tiles

    for kernel, sizes in SMALL.items():
        monkeypatch.setitem(tiles(CPU), kernel, sizes)


@pytest.fixture
def values():
    """`values(*shape, dtype=, seed=)` -> random numbers."""

    def make(*shape, dtype=torch.float32, seed=0):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)

    return make


@pytest.fixture
def apart():
    """`apart(tensor)` -> the same numbers in rows that lie apart, NaN and infinity between them."""

    def make(tensor):
        width = tensor[0].numel() if len(tensor) else tensor.shape[1:].numel()
        whole = torch.full((len(tensor) + 2, width + 9), float("nan")).to(tensor.dtype)
        whole[:, ::2] = float("inf")
        return whole[1:-1, 5 : 5 + width].view(tensor.shape).copy_(tensor)

    return make


@pytest.fixture
def close():
    """`close(found, due)`: within the rounding of `found`'s dtype, and of sums in float32, of `due` in float64."""

    def check(found, due):
        epsilon = torch.finfo(found.dtype).eps
        assert found.shape == due.shape
        torch.testing.assert_close(found.double(), due, rtol=max(0.51 * epsilon, 3e-6), atol=2e-6, equal_nan=True)

    return check
