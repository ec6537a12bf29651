"""The element-wise kernels against float64, at every instruction set of this machine."""

import pytest
import torch
from core_plugin_cpu.native import elementwise

from core.api import RopeConfig
from core.ops import rotary, rotary_interleaved, rotary_table

DTYPES = (torch.float32, torch.bfloat16)
SIZES = (1, 7, 16, 63, 64, 576, 1000)


def close(got, wanted, dtype):
    """`wanted` is float64. One rounding to the dtype is allowed, and float32's own error."""
    assert got.dtype == dtype
    tolerance = {"rtol": 2**-8, "atol": 1e-6} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(got.double(), wanted, **tolerance)


def norm64(x, weight, eps):
    x = x.double()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.double()


@pytest.mark.covers("ATTN-04")
@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm(isa, dtype):
    for size in SIZES:
        x, weight = torch.randn(5, size).to(dtype), torch.randn(size).to(dtype)
        close(elementwise.rms_norm(x, weight, 1e-5), norm64(x, weight, 1e-5), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_of_heads_inside_a_wider_tensor(isa, dtype):
    qkv, weight = torch.randn(6, 5, 64).to(dtype), torch.randn(64).to(dtype)
    close(elementwise.rms_norm(qkv[:, 1:4], weight, 1e-6), norm64(qkv[:, 1:4], weight, 1e-6), dtype)
    deep = torch.randn(2, 3, 4, 64).to(dtype)
    close(elementwise.rms_norm(deep, weight, 1e-6), norm64(deep, weight, 1e-6), dtype)
    close(elementwise.rms_norm(deep[0, 0, 0], weight, 1e-6), norm64(deep[0, 0, 0], weight, 1e-6), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm_normalises_the_rounded_sum(isa, dtype):
    for size in SIZES:
        x, residual, weight = (torch.randn(shape).to(dtype) for shape in ((5, size), (5, size), (size,)))
        kept = residual.clone()
        normed, total = elementwise.add_rms_norm(x, residual, weight, 1e-5)
        assert torch.equal(total, x + residual) and torch.equal(residual, kept)
        close(normed, norm64(total, weight, 1e-5), dtype)


def test_work_shared_by_threads_is_complete(isa):
    x, weight = torch.randn(401, 576), torch.randn(576)
    close(elementwise.rms_norm(x, weight, 1e-5), norm64(x, weight, 1e-5), torch.float32)
    wide = torch.randn(3, 2 * 30011)
    close(elementwise.gated(wide, "silu"), gated64(wide, "silu"), torch.float32)


def gated64(x, activation):
    gate, up = x.double().chunk(2, -1)
    act = {
        "silu": torch.nn.functional.silu,
        "gelu": torch.nn.functional.gelu,
        "gelu_pytorch_tanh": lambda gate: torch.nn.functional.gelu(gate, approximate="tanh"),
    }[activation]
    return act(gate) * up


@pytest.mark.covers("ATTN-04")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", elementwise.ACTIVATIONS)
def test_gated_activations(isa, dtype, activation):
    for size in SIZES:
        x = torch.randn(4, 2 * size).mul(3).to(dtype)
        close(elementwise.gated(x, activation), gated64(x, activation), dtype)


@pytest.mark.parametrize("activation", elementwise.ACTIVATIONS)
def test_gated_activations_over_the_whole_range(isa, activation):
    gate = torch.cat([torch.linspace(-120, 120, 48001), torch.tensor([0.0, -0.0, 3e38, -3e38, 1e-38])])
    got = elementwise.gated(torch.cat([gate, torch.ones_like(gate)]), activation)
    wanted = gated64(torch.cat([gate, torch.ones_like(gate)]), activation)
    torch.testing.assert_close(got.double(), wanted, rtol=2e-5, atol=1e-6)


def test_gated_activations_pass_nan_on(isa):
    for activation in elementwise.ACTIVATIONS:
        for dtype in DTYPES:
            got = elementwise.gated(torch.full((1, 64), float("nan"), dtype=dtype), activation)
            assert got.isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather(isa, dtype):
    table, ids = torch.randn(50, 33).to(dtype), torch.randint(0, 50, (400,))
    assert torch.equal(elementwise.gather(table, ids), table[ids])
    assert elementwise.gather(table, ids[:0]).shape == (0, 33)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("head_dim", "rotated"), [(64, 64), (32, 24), (80, 20), (128, 128)])
def test_rotary(isa, dtype, head_dim, rotated):
    config = RopeConfig(head_dim=head_dim, rotary_dim=rotated, max_positions=300)
    table = rotary_table(config, 300).to(dtype)
    qkv, positions = torch.randn(50, 9, head_dim).to(dtype), torch.randint(0, 300, (50,))
    q, k, _ = qkv.split([5, 2, 2], 1)
    for got, x in zip(elementwise.rotary(positions, q, k, table), (q, k)):
        close(got, rope64(x, table[positions], rotated), dtype)


@pytest.mark.covers("ATTN-04")
@pytest.mark.parametrize("dtype", DTYPES)
def test_rotary_equals_the_form_in_torch(isa, dtype):
    table = rotary_table(RopeConfig(head_dim=32, rotary_dim=16), 70).to(dtype)
    heads, positions = torch.randn(40, 5, 32).to(dtype), torch.randint(0, 70, (40,))
    q, k, _ = heads.split([3, 1, 1], 1)
    for got, wanted in zip(elementwise.rotary(positions, q, k, table), rotary(positions, q, k, table)):
        torch.testing.assert_close(got, wanted, rtol=0.02, atol=0.02)


def rope64(x, rows, rotated):
    x, half = x.double(), rotated // 2
    cos, sin = rows.double()[:, None, :half], rows.double()[:, None, rotated + half :]
    a, b = x[..., :half], x[..., half:rotated]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., rotated:]], -1)


def test_a_bf16_step_may_read_a_float32_table(isa):
    table = rotary_table(RopeConfig(head_dim=64, rotary_dim=64), 40)
    q, positions = torch.randn(40, 3, 64).bfloat16(), torch.arange(40)
    got, _ = elementwise.rotary(positions, q, q, table)
    close(got, rope64(q, table, 64), torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("head_dim", "rotated"), [(64, 64), (32, 24), (80, 20), (24, 2), (128, 126)])
def test_neighbours_are_rotated_as_pairs(isa, dtype, head_dim, rotated):
    table = rotary_table(RopeConfig(head_dim=head_dim, rotary_dim=rotated, interleaved=True), 300).to(dtype)
    qkv, positions = torch.randn(50, 9, head_dim).to(dtype), torch.randint(0, 300, (50,))
    q, k, _ = qkv.split([5, 2, 2], 1)
    due = rotary_interleaved(positions, q.double(), k.double(), table.double())
    for got, wanted in zip(elementwise.rotary(positions, q, k, table, interleaved=True), due):
        close(got, wanted, dtype)
