"""Encoder attention, layer norm, GELU and sums by native kernels, against the torch forms at every instruction set."""

import numpy as np
import pytest
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_cpu.native import elementwise
from core_plugin_torch_sdpa.backend import TorchSdpaBackend

from core.api.attention import AttentionContext, AttentionSite, BatchView
from core.ops import add_layer_norm, gelu, gelu_tanh, layer_norm

DTYPES = (torch.float32, torch.bfloat16)
LENGTHS = (1, 20, 5, 96, 33, 1, 130, 200, 17)


def view(lengths):
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    zeros = torch.zeros(len(lengths), 1, dtype=torch.int32)
    most = max(lengths)
    return BatchView(
        starts, np.array(lengths, np.int32), zeros, torch.zeros(sum(lengths), dtype=torch.int64), most, most
    )


def attend(kind, site, lengths, dtype, inputs):
    backend = kind(AttentionContext(torch.device("cpu"), dtype, dtype, 16))
    with torch.inference_mode():
        return backend.encoder(site).forward(*(x.to(dtype) for x in inputs), backend.plan(view(lengths)))


def inputs_of(site, lengths, scale=1.0):
    rng = torch.Generator().manual_seed(sum(lengths))
    counts = (site.num_heads, site.num_kv_heads, site.num_kv_heads)
    # As a model has them: slices of one product.
    whole = torch.randn(sum(lengths), sum(counts), site.head_dim, generator=rng).mul(scale).bfloat16().float()
    return whole.split(counts, dim=1)


def compare(site, lengths, dtype, scale=1.0):
    inputs = inputs_of(site, lengths, scale)
    wanted = attend(TorchSdpaBackend, site, lengths, torch.float32, inputs)
    got = attend(NativeAttentionBackend, site, lengths, dtype, inputs)
    assert got.dtype == dtype
    close = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 1e-2}
    torch.testing.assert_close(got.float(), wanted, **close)


@pytest.mark.covers("ATTN-07")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [1, 12, 32, 33, 64, 80, 128, 256])
def test_encoder_attention_of_any_head(isa, head_dim, dtype):
    compare(AttentionSite(0, 3, 3, head_dim, head_dim**-0.5), LENGTHS, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_that_share_keys_windows_and_long_prompts(isa, dtype):
    compare(AttentionSite(0, 6, 2, 32, 32**-0.5), LENGTHS, dtype)
    for window in (1, 7, 64, 128, 401):
        compare(AttentionSite(0, 2, 2, 32, 32**-0.5, window), (3, 700, 40), dtype)
    compare(AttentionSite(0, 2, 2, 64, 0.125), (1100,), dtype, scale=4.0)


def test_a_prompt_that_is_no_number_leaves_the_others_alone(isa):
    site = AttentionSite(0, 2, 2, 32, 32**-0.5)
    for dtype in DTYPES:
        inputs = inputs_of(site, (5, 9, 40))
        alone = attend(NativeAttentionBackend, site, (5, 9, 40), dtype, inputs)
        spoilt = [x.clone() for x in inputs]
        for x in spoilt:
            x[5:14] = float("nan")
        found = attend(NativeAttentionBackend, site, (5, 9, 40), dtype, spoilt)
        assert torch.equal(found[:5], alone[:5]) and torch.equal(found[14:], alone[14:])
        assert found[5:14].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm(isa, dtype):
    close = {"rtol": 2**-7, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    for size in (1, 7, 16, 63, 384, 1000, 16384, 16390):
        x, residual = torch.randn(2, 5, size).mul(3).add(2).to(dtype)
        weight, bias = torch.randn(2, size).to(dtype)
        for b in (bias, None):
            torch.testing.assert_close(
                elementwise.layer_norm(x, weight, b, 1e-12), layer_norm(x, weight, b, 1e-12), **close
            )
            normed, total = elementwise.add_layer_norm(x, residual, weight, b, 1e-5)
            wanted, due = add_layer_norm(x, residual, weight, b, 1e-5)
            assert torch.equal(total, due)
            torch.testing.assert_close(normed, wanted, **close)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu(isa, dtype):
    x = torch.cat([torch.linspace(-20, 40, 20011), torch.tensor([0.0, -0.0, 1e30, float("inf")])]).to(dtype)
    x = x.repeat(3).view(3, -1)
    close = {"rtol": 2**-7, "atol": 1e-6} if dtype == torch.bfloat16 else {"rtol": 2e-5, "atol": 1e-6}
    exact = torch.nn.functional.gelu(x.double())
    torch.testing.assert_close(elementwise.activate(x, "gelu").double(), exact, **close)
    bent = torch.nn.functional.gelu(x.double(), approximate="tanh")
    torch.testing.assert_close(elementwise.activate(x, "gelu_pytorch_tanh").double(), bent, **close)
    nan = torch.tensor([[float("nan"), float("-inf")]], dtype=dtype)
    for name, form in (("gelu", gelu), ("gelu_pytorch_tanh", gelu_tanh)):
        torch.testing.assert_close(elementwise.activate(nan, name), form(nan), equal_nan=True)


def test_positions_are_shifted():
    assert torch.equal(elementwise.shift(torch.arange(9), 2), torch.arange(2, 11))
