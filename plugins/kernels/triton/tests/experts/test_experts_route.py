"""Routing in the interpreter, against the reference form."""

import pytest
import torch
from core_plugin_kernels_triton.experts.route import route

from core.api.experts import Routing
from core.ops.experts import route as reference

RULES = [
    Routing(top_k=2),
    Routing(top_k=8, renormalize=True, factor=2.5),
    Routing(top_k=3, chosen_only=True),
    Routing(top_k=1, chosen_only=True, score="sigmoid"),
    Routing(top_k=4, score="sigmoid", correction=True, renormalize=True, eps=1e-20, factor=2.5),
    Routing(top_k=3, score="sigmoid", correction=True, groups=4, top_groups=2, group_by="top2"),
    Routing(top_k=3, groups=4, top_groups=1),
    Routing(top_k=2, cap=1.5),
    Routing(top_k=2, score="sqrt_softplus", correction=True, renormalize=True, eps=1e-20, factor=1.5),
]


@pytest.mark.covers("MOE-05")
@pytest.mark.parametrize("routing", RULES, ids=lambda rule: f"{rule.score}-{rule.top_k}-{rule.groups}")
@pytest.mark.parametrize("experts", [12, 20])
def test_experts_and_weights_are_those_of_the_reference(routing, experts):
    rng = torch.Generator().manual_seed(experts)
    wide = torch.full((11, experts + 3), torch.nan)
    logits = wide[:, 2 : 2 + experts].copy_(torch.randn(11, experts, generator=rng) * 2)
    correction = torch.randn(experts, generator=rng) * 0.2 if routing.correction else None
    weights, ids = route(logits, correction, routing)
    due, due_ids = reference(logits, correction, routing)
    assert ids.dtype == torch.int32 and torch.equal(ids, due_ids)
    torch.testing.assert_close(weights, due, rtol=1e-5, atol=1e-6)


def test_all_experts_can_be_chosen_and_no_token_may_come():
    logits = torch.randn(3, 5)
    weights, ids = route(logits, None, Routing(top_k=5))
    assert ids.sort(-1).values.tolist() == [[0, 1, 2, 3, 4]] * 3
    torch.testing.assert_close(weights.sum(-1), torch.ones(3))
    assert [one.shape for one in route(logits[:0], None, Routing(top_k=2))] == [(0, 2), (0, 2)]


@pytest.mark.parametrize("strange", [torch.nan, torch.inf, -torch.inf])
def test_what_is_chosen_are_always_different_experts(strange):
    logits = torch.randn(4, 6)
    logits[1] = strange
    logits[2, 3] = strange
    for routing in (Routing(top_k=4), Routing(top_k=3, groups=3, top_groups=2, group_by="top2")):
        _, ids = route(logits, None, routing)
        assert all(len(set(row)) == routing.top_k and set(row) <= set(range(6)) for row in ids.tolist())
        assert torch.equal(ids[[0, 3]], reference(logits, None, routing)[1][[0, 3]])


def test_of_equal_scores_the_first_experts_are_taken():
    assert route(torch.zeros(1, 9), None, Routing(top_k=3))[1].tolist() == [[0, 1, 2]]
