"""The reference operations against their definitions, and rotary frequencies against transformers."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from core import ops
from core.api import CheckpointError, RopeConfig

GENERATOR = torch.Generator().manual_seed(0)


def random(*shape):
    return torch.randn(*shape, generator=GENERATOR)


def test_rms_norm_is_its_definition_for_any_leading_shape():
    x, weight = random(3, 5, 16), random(16)
    expected = x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    torch.testing.assert_close(ops.rms_norm(x, weight, 1e-5), expected)


def test_rms_norm_squares_in_float32():
    """300 squared is beyond float16."""
    x, weight = torch.full((1, 8), 300.0, dtype=torch.float16), torch.ones(8, dtype=torch.float16)
    torch.testing.assert_close(ops.rms_norm(x, weight, 1e-6), torch.ones(1, 8, dtype=torch.float16))


def test_add_rms_norm_returns_norm_and_sum_and_leaves_its_inputs():
    x, residual, weight = random(4, 16), random(4, 16), random(16)
    kept = x.clone(), residual.clone()
    normed, total = ops.add_rms_norm(x, residual, weight, 1e-6)
    torch.testing.assert_close(total, x + residual, rtol=0, atol=0)
    torch.testing.assert_close(normed, ops.rms_norm(x + residual, weight, 1e-6), rtol=0, atol=0)
    assert torch.equal(x, kept[0]) and torch.equal(residual, kept[1])


@pytest.mark.parametrize(
    ("op", "act"),
    [
        (ops.silu_and_mul, torch.nn.functional.silu),
        (ops.gelu_and_mul, torch.nn.functional.gelu),
        (ops.gelu_tanh_and_mul, lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    ],
)
def test_gated_activations(op, act):
    gate, up = random(3, 8), random(3, 8)
    torch.testing.assert_close(op(torch.cat((gate, up), -1)), act(gate) * up)


def _rotated(x, positions, frequencies):
    """Rotate pair (i, i + half) as a complex number."""
    half = len(frequencies)
    turned = torch.complex(x[..., :half], x[..., half : 2 * half])
    angles = torch.outer(positions.float(), frequencies)[:, None]
    turned = turned * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag, x[..., 2 * half :]), -1)


@pytest.mark.parametrize("rotary_dim", [16, 8])
def test_rotation_is_a_complex_product_and_leaves_the_other_dimensions(rotary_dim):
    config = RopeConfig(head_dim=16, rotary_dim=rotary_dim, max_positions=32)
    x, positions = random(6, 2, 16), torch.tensor([0, 1, 5, 30, 31, 2])
    cos, sin = ops.rotary_table(config, 32)[positions].unsqueeze(1).chunk(2, -1)
    frequencies, factor = ops.inverse_frequencies(config)
    assert factor == 1.0
    torch.testing.assert_close(ops.apply_rotary(x, cos, sin), _rotated(x, positions, frequencies))


SCALINGS = [
    {"rope_type": "linear", "factor": 2.5},
    {"rope_type": "dynamic", "factor": 3.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "truncate": False},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 1.7},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 1.0, "mscale_all_dim": 0.7},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16.0, "beta_slow": 2.0},
    {"rope_type": "yarn", "factor": 2.0},
]


@pytest.mark.covers("MODEL-04")
@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: "-".join(map(str, scaling.values())))
def test_frequencies_equal_transformers(scaling, theta):
    reference = LlamaConfig(
        hidden_size=128,
        num_attention_heads=4,
        max_position_embeddings=256,
        rope_parameters={"rope_theta": theta, **scaling},
    )
    expected, expected_factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](reference, torch.device("cpu"))
    config = RopeConfig(head_dim=32, rotary_dim=32, theta=theta, max_positions=256, scaling=scaling)
    frequencies, factor = ops.inverse_frequencies(config)
    torch.testing.assert_close(frequencies, expected)
    assert math.isclose(factor, expected_factor)


def test_the_older_key_type_is_read():
    scaling = {"type": "linear", "factor": 2.0}
    config = RopeConfig(head_dim=8, rotary_dim=8, scaling=scaling)
    plain, _ = ops.inverse_frequencies(RopeConfig(head_dim=8, rotary_dim=8))
    torch.testing.assert_close(ops.inverse_frequencies(config)[0], plain / 2)


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        (
            {"rope_type": "spiral"},
            "'spiral' is not supported; supported: default, dynamic, linear, llama3, longrope, proportional, yarn",
        ),
        ({"rope_type": "linear"}, "needs a number 'factor'"),
        ({"rope_type": "llama3", "factor": 2.0}, "needs a number 'low_freq_factor'"),
    ],
)
def test_unknown_rules_and_missing_parameters_are_named(scaling, words):
    with pytest.raises(CheckpointError, match=f"CORE-M125 .*{words}"):
        ops.inverse_frequencies(RopeConfig(head_dim=8, rotary_dim=8, scaling=scaling))
