"""Rotary embeddings in the interpreter beside float64."""

import pytest
import torch
from core_plugin_kernels_triton.ops import rotary

from core.api.rotary import RopeConfig
from core.ops import rotary as reference
from core.ops import rotary_interleaved as reference_interleaved
from core.ops import rotary_table

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FORMS = {"halves": (rotary.rotary, reference), "neighbours": (rotary.rotary_interleaved, reference_interleaved)}
SIZES = ((1, 1, 1, 2, 2), (3, 4, 2, 8, 8), (5, 3, 1, 20, 8), (2, 5, 5, 24, 20), (1, 2, 3, 7, 6))
"""Tokens, heads, key heads, size of a head, of which rotated."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_queries_and_keys_are_rotated(values, apart, close, form, dtype):
    kernel, due = FORMS[form]
    for tokens, heads, kv_heads, head_dim, size in SIZES:
        config = RopeConfig(head_dim=head_dim, rotary_dim=size, theta=100.0, max_positions=64, scaling={})
        table = rotary_table(config, 64).to(dtype)
        positions = (torch.arange(tokens) * 17 + 3) % 64
        q, k = values(tokens, heads, head_dim, dtype=dtype), values(tokens, kv_heads, head_dim, dtype=dtype, seed=1)
        expected = due(positions, q.double(), k.double(), table.double())
        for given in ((q, k), (apart(q), apart(k))):
            for found, wanted in zip(kernel(positions, *given, table), expected):
                close(found, wanted)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_rotated_keeps_its_bits(values, form):
    config = RopeConfig(head_dim=12, rotary_dim=4, theta=100.0, max_positions=8, scaling={})
    q, k = values(2, 3, 12), values(2, 1, 12, seed=1)
    q[0, 1, 7] = float("nan")
    for x, found in zip((q, k), FORMS[form][0](torch.tensor([7, 2]), q, k, rotary_table(config, 8))):
        assert torch.equal(found[..., 4:].view(torch.int32), x[..., 4:].view(torch.int32))


@pytest.mark.parametrize("form", FORMS)
def test_no_tokens(values, form):
    config = RopeConfig(head_dim=4, rotary_dim=4, theta=100.0, max_positions=8, scaling={})
    q, k = FORMS[form][0](torch.zeros(0, dtype=torch.int64), values(0, 3, 4), values(0, 1, 4), rotary_table(config, 8))
    assert (q.shape, k.shape) == ((0, 3, 4), (0, 1, 4))
