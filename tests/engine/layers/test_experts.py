"""Routing and experts: each token by itself, in plain loops, is what the layers are held against."""

from __future__ import annotations

import math

import pytest
import torch
from core_plugin_unquantized.plain import Plain

from core.api import CheckpointError, QuantContext, Ranks, Routing, WeightRules
from core.layers.builder import Builder
from core.ops.experts import add_identities, route
from core.worker.loading.fill import WeightFiller
from core.worker.loading.names import NameMap
from core_testing.conformance.tools.tensors import PlainTensor
from core_testing.ranks import run_ranks

CPU = torch.device("cpu")
EXPERTS, HIDDEN, SIZE = 6, 20, 12
GATED = ("gate_proj", "up_proj")


def built(make, tensors, *, rules=None, ranks=None, all_reduce=None, dtype=torch.float32):
    form = Plain(QuantContext(CPU, dtype, {}))
    build = Builder(form, None, device=CPU, dtype=dtype, ranks=ranks, all_reduce=all_reduce)
    made = make(build)
    WeightFiller(build.groups, NameMap(rules or WeightRules(), build.left_out), CPU).fill(tensors)
    return made


# -- routing -----------------------------------------------------------------------------------------------------------

ROUTINGS = {
    "softmax": Routing(top_k=3),
    "renormalized": Routing(top_k=3, renormalize=True, eps=1e-20, factor=2.5),
    "sigmoid": Routing(top_k=2, score="sigmoid"),
    "chosen only": Routing(top_k=2, chosen_only=True),
    "sigmoid of the chosen": Routing(top_k=1, chosen_only=True, score="sigmoid"),
    "corrected": Routing(top_k=3, score="sigmoid", correction=True, renormalize=True),
    "groups by maximum": Routing(top_k=2, groups=3, top_groups=1),
    "groups by two": Routing(top_k=3, score="sigmoid", correction=True, groups=3, top_groups=2, group_by="top2"),
    "everybody": Routing(top_k=EXPERTS),
    "capped": Routing(top_k=3, cap=1.5, factor=2.0),
    "chosen by capped logits": Routing(top_k=2, chosen_only=True, cap=4.0),
}


def routed(row, correction, routing):
    """Return expert -> weight of one token's logits."""
    if routing.cap:
        row = torch.tensor([routing.cap * math.tanh(float(one) / routing.cap) for one in row])
    own = [torch.sigmoid(one) for one in row] if routing.score == "sigmoid" else list(row.softmax(0))
    wanted = list(row) if routing.chosen_only else own
    wanted = [float(one) + (0.0 if correction is None else float(correction[i])) for i, one in enumerate(wanted)]
    each = len(row) // routing.groups
    groups = [sorted(wanted[first : first + each], reverse=True) for first in range(0, len(row), each)]
    worth = [sum(group[: 1 if routing.group_by == "max" else 2]) for group in groups]
    best = sorted(range(len(groups)), key=lambda one: -worth[one])[: routing.top_groups]
    allowed = [expert for expert in range(len(row)) if expert // each in best]
    chosen = sorted(allowed, key=lambda one: -wanted[one])[: routing.top_k]
    if routing.chosen_only and routing.score == "softmax":
        weights = row[chosen].softmax(0).tolist()
    else:
        weights = [float(own[expert]) for expert in chosen]
    if routing.renormalize:
        weights = [one / (sum(weights) + routing.eps) for one in weights]
    return {expert: one * routing.factor for expert, one in zip(chosen, weights, strict=True)}


@pytest.mark.covers("MOE-05")
@pytest.mark.parametrize("name", ROUTINGS)
def test_every_token_is_routed_as_it_would_be_alone(name):
    routing = ROUTINGS[name]
    torch.manual_seed(1)
    logits, correction = torch.randn(17, EXPERTS) * 2, torch.randn(EXPERTS) * 0.3 if routing.correction else None
    weights, ids = route(logits, correction, routing)
    assert (weights.dtype, ids.dtype) == (torch.float32, torch.int32)
    for row, own, chosen in zip(logits, weights.tolist(), ids.tolist(), strict=True):
        due = routed(row, correction, routing)
        assert dict(zip(chosen, own, strict=True)) == pytest.approx(due, abs=1e-6)


def sigmoid_of_the_best(logits, bias, k):
    best, ids = logits.topk(k)
    return best.sigmoid(), ids


def shares_of_the_best(logits, bias, k):
    best, ids = logits.topk(k)
    return best.softmax(-1), ids


def corrected_sigmoids(logits, bias, k):
    scores = logits.sigmoid()
    ids = (scores + bias).topk(k).indices
    weights = scores.gather(-1, ids)
    return 2.5 * weights / weights.sum(-1, keepdim=True), ids


def best_shares(logits, bias, k):
    weights, ids = logits.softmax(-1).topk(k)
    return weights / weights.sum(-1, keepdim=True), ids


def roots(logits, bias, k):
    scores = (1 + logits.exp()).log().sqrt()
    ids = (scores + bias).topk(k).indices
    weights = scores.gather(-1, ids)
    return weights / weights.sum(-1, keepdim=True), ids


def capped_shares(logits, bias, k):
    return (5 * (logits / 5).tanh()).softmax(-1).topk(k)


FUNCTIONS = {
    "Llama 4": (sigmoid_of_the_best, Routing(top_k=2, score="sigmoid", chosen_only=True)),
    "Aria, gpt-oss, Granite": (shares_of_the_best, Routing(top_k=3, chosen_only=True)),
    "MiniMax-M2, Step 3.5, AFMoE": (
        corrected_sigmoids,
        Routing(top_k=3, score="sigmoid", correction=True, renormalize=True, factor=2.5),
    ),
    "Mixtral, Qwen3": (best_shares, Routing(top_k=2, renormalize=True)),
    "DeepSeek V4": (roots, Routing(top_k=3, score="sqrt_softplus", correction=True, renormalize=True)),
    "Grok": (capped_shares, Routing(top_k=2, cap=5.0)),
}
"""Routing functions that other servers have in the code of models: what is made of logits, and the rule for it."""


@pytest.mark.covers("MOE-05")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_routing_function_of_another_server_is_a_rule(name):
    function, routing = FUNCTIONS[name]
    torch.manual_seed(4)
    logits, bias = torch.randn(40, EXPERTS) * 3, torch.randn(EXPERTS) * 0.3
    due, chosen = function(logits, bias, routing.top_k)
    weights, ids = route(logits, bias if routing.correction else None, routing)
    assert torch.equal(ids.long(), chosen)
    torch.testing.assert_close(weights, due)


def of_gemma4(build):
    from core_plugin_decoder import Fields
    from core_plugin_gemma.gemma4_experts import ScaledRouter

    given = {"hidden_size": HIDDEN, "num_experts": EXPERTS, "top_k_experts": 3}
    return ScaledRouter(Fields(given), build, "router")


def of_phimoe(build):
    from core_plugin_phi.phimoe import SparseMixer

    return SparseMixer(build, HIDDEN, EXPERTS, "router", 0.3)


OWN = {
    "gemma4_text": (of_gemma4, "Gemma4TextRouter", {"num_experts": EXPERTS, "top_k_experts": 3}),
    "phimoe": (of_phimoe, "PhimoeTopKRouter", {"num_local_experts": EXPERTS, "router_jitter_noise": 0.3}),
}
"""Routers that no rule says: by the model type of transformers, whose class they are held against."""


@pytest.mark.covers("MOE-05")
@pytest.mark.parametrize("kind", OWN)
def test_a_router_of_a_family_is_the_reference_s(kind):
    import importlib

    import transformers

    make, name, settings = OWN[kind]
    family = kind.removesuffix("_text")
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    torch.manual_seed(5)
    reference = getattr(module, name)(transformers.AutoConfig.for_model(kind, hidden_size=HIDDEN, **settings)).eval()
    for parameter in reference.parameters():
        parameter.data.normal_(1.0 if parameter.dim() == 1 else 0.0, 0.4)
    router = built(make, [PlainTensor(f"router.{key}", one) for key, one in reference.state_dict().items()])
    x = torch.randn(40, HIDDEN)
    with torch.no_grad():
        _, due, chosen = reference(x)
    weights, ids = router(x)
    assert torch.equal(ids.long(), chosen)
    torch.testing.assert_close(weights, due, atol=1e-5, rtol=1e-5)


@pytest.mark.covers("MOE-06")
def test_a_router_has_float32_logits_in_a_model_of_16_bits():
    """Two experts whose logits differ by less than bfloat16 can tell."""
    weight = torch.zeros(4, HIDDEN)
    weight[1, :2], weight[2, 0] = torch.tensor([1.0, 1 / 512]), 1.0
    router = built(
        lambda build: build.router(HIDDEN, 4, Routing(top_k=1, correction=True), "gate", correction="gate.bonus"),
        [PlainTensor("gate.weight", weight), PlainTensor("gate.bonus", torch.tensor([0.0, 0.0, 1e-6, 0.0]))],
        dtype=torch.bfloat16,
    )
    x = torch.zeros(1, HIDDEN, dtype=torch.bfloat16)
    x[0, :2] = 1
    assert router(x)[1].tolist() == [[1]]


def test_a_correction_is_asked_for_where_the_rule_has_one():
    with pytest.raises(ValueError, match="correction"):
        built(lambda build: build.router(HIDDEN, 4, Routing(top_k=1, correction=True), "gate"), [])


@pytest.mark.parametrize("wrong", [{"top_k": 0}, {"top_k": 1, "groups": 2, "top_groups": 3}])
def test_rules_that_nobody_can_follow(wrong):
    with pytest.raises(ValueError, match="cannot be chosen"):
        Routing(**wrong)


def test_a_cap_is_not_negative():
    with pytest.raises(ValueError, match=r"cap: -1\.0 is negative"):
        Routing(top_k=1, cap=-1.0)


def test_identities_add_what_they_are_weighed_with():
    """Of five experts and three identities: a token of two identities, one of one, one of none."""
    x, out = torch.tensor([[1.0, 2.0]] * 3), torch.tensor([[10.0, 20.0]] * 3)
    weights, ids = torch.tensor([[0.5, 0.25]] * 3), torch.tensor([[5, 7], [4, 6], [0, -1]], dtype=torch.int32)
    found = add_identities(out, x, weights, ids, 5)
    assert found.tolist() == [[10.75, 21.5], [10.25, 20.5], [10.0, 20.0]]


# -- experts -----------------------------------------------------------------------------------------------------------


def weights_of_experts(*, bias=False):
    torch.manual_seed(2)
    found = {}
    for expert in range(EXPERTS):
        for part in GATED:
            found[expert, part] = torch.randn(SIZE, HIDDEN) * 0.3
        found[expert, "down_proj"] = torch.randn(HIDDEN, SIZE) * 0.3
        if bias:
            found |= {(expert, f"{part} bias"): torch.randn(SIZE) for part in GATED}
            found[expert, "down_proj bias"] = torch.randn(HIDDEN)
    return found


def stored(found):
    for (expert, part), values in found.items():
        name, _, kind = part.partition(" ")
        yield PlainTensor(f"mlp.experts.{expert}.{name}.{kind or 'weight'}", values)


def gated(build, **further):
    return build.experts(EXPERTS, HIDDEN, SIZE, "mlp.experts", build.gated_activation("silu"), **further)


def one_by_one(found, x, weights, ids, *, bias=False):
    """Return what each token's experts make of it, added up one after another."""
    out = torch.zeros_like(x)
    for token, row in enumerate(x):
        for weight, expert in zip(weights[token], ids[token].tolist(), strict=True):
            if expert < 0:
                continue
            gate, up = (found[expert, part] @ row + (found[expert, f"{part} bias"] if bias else 0) for part in GATED)
            inner = torch.nn.functional.silu(gate) * up
            made = found[expert, "down_proj"] @ inner + (found[expert, "down_proj bias"] if bias else 0)
            out[token] += weight * made
    return out


def choices(tokens, k, kind="any"):
    torch.manual_seed(tokens + k)
    ids = torch.rand(tokens, EXPERTS).argsort(-1)[:, :k].int()
    if kind == "one expert":
        ids = torch.full((tokens, k), -1, dtype=torch.int32)
        ids[:, 0] = 4
    if kind == "some without":
        ids[::2, -1] = -1
        ids[0] = -1
    return torch.rand(tokens, k), ids


@pytest.mark.covers("MOE-01", "MOE-07", "MOE-08")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["any", "one expert", "some without"])
@pytest.mark.parametrize(("tokens", "k"), [(0, 2), (1, 1), (1, EXPERTS), (9, 2), (40, 3)])
def test_experts_give_what_each_token_gets_alone(tokens, k, kind, bias):
    found = weights_of_experts(bias=bias)
    experts = built(lambda build: gated(build, bias=bias), list(stored(found)))
    x = torch.randn(tokens, HIDDEN)
    weights, ids = choices(tokens, k, kind if tokens else "any")
    before = ids.clone()
    torch.testing.assert_close(experts(x, weights, ids), one_by_one(found, x, weights, ids, bias=bias))
    assert torch.equal(ids, before)


def test_a_token_has_the_same_result_in_every_batch():
    found = weights_of_experts()
    experts = built(gated, list(stored(found)))
    x, (weights, ids) = torch.randn(7, HIDDEN), choices(7, 3)
    whole = experts(x, weights, ids)
    order = torch.tensor([6, 2, 0, 5, 1, 4, 3])
    torch.testing.assert_close(experts(x[order], weights[order], ids[order]), whole[order])


FUSED = {
    "outputs first, halves": ("halves", False),
    "inputs first, by turns": ("interleaved", True),
}


@pytest.mark.covers("MOE-01")
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("name", FUSED)
def test_tensors_of_all_experts_are_taken_apart(name, size):
    split, turned = FUSED[name]
    found = weights_of_experts()
    pairs = [[found[expert, part] for part in GATED] for expert in range(EXPERTS)]
    both = torch.stack([torch.cat(p) if split == "halves" else torch.stack(p, 1).flatten(0, 1) for p in pairs])
    down = torch.stack([found[expert, "down_proj"] for expert in range(EXPERTS)])
    both, down = (one.transpose(1, 2).contiguous() if turned else one for one in (both, down))
    tensors = [PlainTensor("mlp.experts.gate_up_proj", both), PlainTensor("mlp.experts.down_proj", down)]
    rules = WeightRules(
        experts=(
            (".experts.gate_up_proj", ".experts.{}.gate_up_proj.weight"),
            (".experts.down_proj", ".experts.{}.down_proj.weight"),
        ),
        transpose=("*.gate_up_proj.weight", "*.down_proj.weight") if turned else (),
    )

    def activation(y):
        gate, up = y.chunk(2, dim=-1) if split == "halves" else (y[:, ::2], y[:, 1::2])
        return torch.nn.functional.silu(gate) * up

    def made(build):
        parts = {"parts": ("gate_up_proj",), "fused": split}
        return build.experts(EXPERTS, HIDDEN, SIZE, "mlp.experts", activation, **parts)

    x, (weights, ids) = torch.randn(5, HIDDEN), choices(5, 2)
    results = run_ranks(
        size,
        lambda ranks, all_reduce: built(made, tensors, rules=rules, ranks=ranks, all_reduce=all_reduce)(
            x, weights, ids
        ),
    )
    for one in results:
        torch.testing.assert_close(one, one_by_one(found, x, weights, ids))


ROWS = WeightRules(
    experts=tuple((f".{part}", f".{{}}.{part}.weight", EXPERTS) for part in (*GATED, "down_proj")),
    transpose=("*.down_proj.weight",),
)


@pytest.mark.covers("MOE-01")
@pytest.mark.parametrize("size", [1, 2])
def test_experts_whose_rows_stand_one_under_another(size):
    found = weights_of_experts()
    tensors = [
        PlainTensor(f"mlp.experts.{part}", torch.cat([found[expert, part] for expert in range(EXPERTS)]))
        for part in GATED
    ]
    # Inner numbers are rows of it, too: each expert's matrix lies the other way round.
    down = torch.cat([found[expert, "down_proj"].t() for expert in range(EXPERTS)])
    tensors.append(PlainTensor("mlp.experts.down_proj", down))
    x, (weights, ids) = torch.randn(5, HIDDEN), choices(5, 2)
    results = run_ranks(
        size,
        lambda ranks, all_reduce: built(gated, tensors, rules=ROWS, ranks=ranks, all_reduce=all_reduce)(
            x, weights, ids
        ),
    )
    for one in results:
        torch.testing.assert_close(one, one_by_one(found, x, weights, ids))


def test_rows_that_are_not_those_of_so_many_experts():
    tensor = PlainTensor("mlp.experts.down_proj", torch.zeros(EXPERTS * SIZE + 1, HIDDEN))
    with pytest.raises(CheckpointError, match=rf"CORE-M122 .*needs \({EXPERTS * SIZE + EXPERTS}, {HIDDEN}\)"):
        built(gated, [tensor], rules=ROWS)


@pytest.mark.covers("MOE-01")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_divide_the_inner_size_of_every_expert(size, bias):
    found = weights_of_experts(bias=bias)
    x, (weights, ids) = torch.randn(5, HIDDEN), choices(5, 2)

    def work(ranks: Ranks, all_reduce):
        make = lambda build: gated(build, bias=bias)  # noqa: E731
        return built(make, list(stored(found)), ranks=ranks, all_reduce=all_reduce)(x, weights, ids)

    for one in run_ranks(size, work):
        torch.testing.assert_close(one, one_by_one(found, x, weights, ids, bias=bias))
