"""What 8- and 16-bit elements keep of a value."""

import pytest
import torch
from core_plugin_torch_sdpa.backend import TorchSdpaBackend
from core_plugin_torch_sdpa.elements import decode, encode

from core.api.attention import AttentionContext, AttentionSite

RELATIVE = {torch.float16: 2**-11, torch.float8_e4m3fn: 2**-4, torch.float8_e5m2: 2**-3}
CPU = torch.device("cpu")


def there_and_back(x, kv_dtype):
    return decode(encode(x, kv_dtype), kv_dtype, torch.float32)


@pytest.mark.parametrize("kv_dtype", RELATIVE)
def test_values_in_range_keep_their_relative_precision(kv_dtype):
    x = torch.randn(100, 3, 64).clamp(-8, 8)
    x[x.abs() < 0.1] = 0.5
    assert ((there_and_back(x, kv_dtype) - x).abs() <= RELATIVE[kv_dtype] * x.abs()).all()


@pytest.mark.parametrize("kv_dtype", RELATIVE)
def test_what_is_too_large_becomes_the_largest_value(kv_dtype):
    most = torch.finfo(kv_dtype).max
    found = there_and_back(torch.tensor([1e6, -1e6, float("inf"), float("nan")]), kv_dtype)
    assert found[:3].tolist() == [most, -most, most] and found[3].isnan()


def test_int8_keeps_each_head_within_half_a_step_of_its_own_scale():
    x = torch.randn(50, 3, 64) * torch.logspace(-3, 3, 50)[:, None, None]
    error = (there_and_back(x, torch.int8) - x).abs()
    assert (error <= x.abs().amax(-1, keepdim=True) / 127 * 0.5001).all()
    assert torch.equal(there_and_back(torch.zeros(1, 1, 16), torch.int8), torch.zeros(1, 1, 16))
    assert there_and_back(torch.full((1, 1, 16), float("nan")), torch.int8).isnan().all()


@pytest.mark.parametrize(("kv_dtype", "per_head"), [(torch.bfloat16, 128), (torch.int8, 68), (torch.float8_e5m2, 64)])
def test_bytes_of_a_block(kv_dtype, per_head):
    backend = TorchSdpaBackend(AttentionContext(CPU, torch.bfloat16, kv_dtype, 16))
    assert backend.kv_layout(AttentionSite(0, 9, 3, 64, 0.125)).bytes_per_block == 2 * 16 * 3 * per_head
