"""The method `int4`: each group has the scale, of those that are tried, with the least squared error."""

from __future__ import annotations

import pytest
import torch
from core_plugin_unquantized.int4 import SHARES, STEPS, Int4, round_groups
from core_plugin_unquantized.manifest import INT4

from core.api import PLAIN, LayerSite, QuantContext
from core.ops.products import opened
from core_testing.layers import PlainTensor, fill, make_layer


def context(**options):
    return QuantContext(torch.device("cpu"), torch.float32, {}, options)


def site(inputs, rows=6, kind="linear"):
    return LayerSite(kind, "x", inputs, (("", rows),))


def read(weight, **options):
    return Int4(context(**options)).read(site(weight.shape[1], len(weight)), "", {"weight": PlainTensor("x", weight)})


def half(value):
    return float(torch.tensor(value).half())


def by_hand(group, *, zeros):
    """The values that a group of numbers stands for, worked out one by one."""
    low, high = min(0.0, *group), max(0.0, *group)
    extreme = max(group, key=abs)
    best, least = None, float("inf")
    for share, steps in zip(SHARES, STEPS, strict=True):
        scale = half((high - low) * share / 15 if zeros else -extreme / steps) or 1.0
        zero = min(15, max(0, round(-low * share / scale))) if zeros else 8
        codes = [min(15, max(0, round(value / scale) + zero)) for value in group]
        values = [(code - zero) * scale for code in codes]
        error = sum((one - other) ** 2 for one, other in zip(values, group, strict=True))
        if error < least:
            best, least = values, error
    return best


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize("zeros", [True, False])
def test_groups_are_what_a_search_by_hand_finds(zeros):
    weight = torch.randn(4, 64, generator=torch.Generator().manual_seed(1)) * 0.1 + 0.02
    codes, scales, points = round_groups(weight, 32, zeros=zeros)
    points = torch.zeros_like(scales) if points is None else points.float()
    found = (codes.float().unflatten(1, (2, 32)) - points.unsqueeze(-1)) * scales.unsqueeze(-1)
    due = torch.tensor([[by_hand(group.tolist(), zeros=zeros) for group in row.split(32)] for row in weight])
    torch.testing.assert_close(found, due, rtol=1e-6, atol=1e-7)
    assert torch.equal(scales, scales.half().float())


@pytest.mark.parametrize(("options", "key"), [({}, "+zeros"), ({"zero_points": False}, "")])
@pytest.mark.parametrize(("inputs", "size"), [(256, 128), (192, 32), (48, 32), (20, 32)])
def test_inputs_that_are_no_whole_groups_have_small_ones(inputs, size, options, key):
    weight = torch.randn(6, inputs, generator=torch.Generator().manual_seed(2))
    part = read(weight, **options)
    assert part.form.key == f"int4/1x{size}:float32{key}@as_is" == Int4(context(**options)).form(site(inputs), "").key
    assert part.codes.shape == weight.shape and part.scales.shape == (6, -(-inputs // size))
    error = (opened(part, torch.float32) - weight).norm() / weight.norm()
    assert 0 < error < 0.11


@pytest.mark.parametrize("zeros", [True, False])
def test_the_search_is_no_worse_than_the_extremes_and_better_in_most_groups(zeros):
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(3))
    groups = weight.unflatten(1, (-1, 128))
    part = read(weight, zero_points=zeros)
    found = (opened(part, torch.float32) - weight).unflatten(1, (-1, 128)).square().sum(-1)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale = ((high - low) / 15 if zeros else torch.where(-low > high, low, high) / -8).half().float()
    zero = (-low / scale).round() if zeros else 8
    plain = (((groups / scale).round() + zero).clamp(0, 15) - zero) * scale
    extremes = (plain - groups).square().sum(-1)
    assert (found <= extremes * (1 + 1e-6)).all() and (found < 0.99 * extremes).float().mean() > 0.5


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("value", [0.0, 1e-12, 3.0, -3.0, 1e5])
def test_groups_of_one_value(value, zeros):
    weight = torch.full((2, 32), value)
    found = opened(read(weight, zero_points=zeros, group_size=32), torch.float32)
    torch.testing.assert_close(found, weight, rtol=1e-2, atol=1e-9)


@pytest.mark.parametrize("kind", ["embedding", "lm_head", "router"])
def test_embeddings_heads_and_routers_stay(kind):
    assert Int4(context()).form(site(128, kind=kind), "") == PLAIN


def test_experts_are_rounded_one_by_one():
    weights = torch.randn(3, 16, 64, generator=torch.Generator().manual_seed(4))
    experts = LayerSite("experts", "x", 64, tuple((f"{expert}.up", 16) for expert in range(3)), experts=3)
    layer = make_layer(Int4(context()), experts)
    fill(layer.group, [PlainTensor(f"x.{expert}.up.weight", one) for expert, one in enumerate(weights)])
    due = torch.cat([opened(read(one), torch.float32) for one in weights])
    assert torch.equal(layer.params["weight"], due)


def test_it_is_only_used_when_it_is_asked_for():
    assert INT4.on_request and INT4.methods == {"none", "gguf"}
