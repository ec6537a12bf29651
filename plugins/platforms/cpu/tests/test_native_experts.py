"""Mixtures of experts beside the reference forms: every form of weights, routing, spreads of tokens, programs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from core_plugin_cpu.graphs import CAPACITIES, PaddedStep, ProgramGraph, ProgramGraphs
from core_plugin_cpu.kernels import add_identities, route, silu_and_mul
from core_plugin_cpu.manifest import CPU_EXPERTS_IN, CPU_ROUTE
from core_plugin_cpu.native import elementwise, experts, library
from core_plugin_cpu.native.packed import Format
from core_plugin_cpu.products.experts import DenseExpertsIn, DenseExpertsOut, ExpertsIn, ExpertsOut
from core_plugin_cpu.products.refine import experts as refine

from core.api import KernelRequest, LayerSite, ProbeResult, ProductPlace, WeightForm
from core.api.experts import Routing
from core.ops.experts import ReferenceExpertsIn, ReferenceExpertsOut
from core.ops.experts import add_identities as reference_add_identities
from core.ops.experts import route as reference_route

from .weights import (
    FORMS,
    NF4,
    NVFP4,
    UNROUNDED,
    K,
    error,
    float8,
    int4,
    int8,
    make,
    packed,
    unrounded,
    weights,
)

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

BF16, NOISE = 0.004, 0.012
"""Bounds of the relative error, as `test_products` has them."""

FEW, MANY = 5, 128
"""Experts."""

Q4_0 = WeightForm(codes="gguf:Q4_0")
FLOATS = (float8(16, 128, activations="float8:128"), NVFP4, NF4)
SOME = (WeightForm(), Q4_0, int8(activations="int8:token"), *FLOATS)


def forms_of(*forms):
    return pytest.mark.parametrize("form", forms, ids=lambda form: form.key)


class Layer:
    """One product with random weights, and the reference product with the same in float32."""

    def __init__(
        self, kind, reference, forms, rows, *, count=FEW, inputs=K, dtype=torch.bfloat16, bias=True, **options
    ):
        parts = [(f"{expert}.{part}", size) for expert in range(count) for part, size in enumerate(rows)]
        site = LayerSite("experts", "layer.experts", inputs, parts, bias, experts=count)
        every = tuple(forms) if len(forms) == len(parts) else tuple(forms) * count
        place = ProductPlace(site, every, torch.device("cpu"), dtype)
        self.product = kind(place, options)
        self.parts = [
            weights(form, size, inputs, seed, bias=bias) for seed, (form, (_, size)) in enumerate(zip(every, parts))
        ]
        self.params = packed(self.product, self.parts)
        forms = tuple(unrounded(form) for form in place.forms)
        self._reference = reference(replace(place, dtype=torch.float32, forms=forms), {})
        self._due = packed(self._reference, self.parts)

    def __call__(self, *given):
        return self.product.apply(*given, self.params)

    def expected(self, x, *given):
        return self._reference.apply(x.float(), *given, self._due)


def widen(form, rows=(48, 48), kind=ExpertsIn, **settings):
    return Layer(kind, ReferenceExpertsIn, [form] * len(rows), rows, **settings)


def narrow(form, rows=80, kind=ExpertsOut, **settings):
    return Layer(kind, ReferenceExpertsOut, [form], (rows,), **settings)


def chosen(tokens, k, count=FEW):
    """Different experts of each token, of which some have none."""
    ids = torch.rand(tokens, count).argsort(1)[:, :k].int().contiguous()
    ids[torch.rand(tokens, k) < 0.1] = -1
    return ids


def assert_equal_layers(layers, ids, dtype, bound):
    """Hold both products against their references; rows without an expert are zeros."""
    (tokens, k), (into, out) = ids.shape, layers
    x, weight = torch.randn(tokens, K).to(dtype), torch.rand(tokens, k)
    y = into(x, ids)
    assert y.shape == (tokens * k, 96) and y.dtype == dtype
    without = int((ids < 0).sum())
    assert not without or not y[-without:].any()
    inner = torch.randn(tokens * k, K).to(dtype)
    z = out(inner, weight, ids)
    assert z.shape == (tokens, 80) and z.dtype == dtype
    if y.any():
        assert error(y, into.expected(x, ids)) < bound
        assert error(z, out.expected(inner, weight, ids)) < bound


@pytest.mark.covers("QUANT-04", "QUANT-12")
@forms_of(*FORMS)
def test_every_form_is_multiplied_as_the_reference_product_does(isa, form):
    layers = widen(form), narrow(form)
    for tokens in (0, 1, 2, 33):
        bound = BF16 if form in UNROUNDED else NOISE
        assert_equal_layers(layers, chosen(tokens, 2), torch.bfloat16, bound)


@forms_of(*FORMS)
def test_computing_in_float32_rounds_nothing_but_what_the_form_says(isa, form):
    settings = {"dtype": torch.float32}
    layers = widen(form, kind=DenseExpertsIn, **settings), narrow(form, kind=DenseExpertsOut, **settings)
    assert_equal_layers(layers, chosen(9, 3), torch.float32, 1e-5)


@pytest.mark.parametrize("k", [1, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@forms_of(*SOME)
def test_many_experts(isa, form, dtype, k):
    kinds = (ExpertsIn, ExpertsOut) if dtype is torch.bfloat16 else (DenseExpertsIn, DenseExpertsOut)
    settings = {"count": MANY, "dtype": dtype, "bias": False}
    layers = widen(form, kind=kinds[0], **settings), narrow(form, kind=kinds[1], **settings)
    bound = 1e-5 if dtype is torch.float32 else BF16 if form == SOME[0] else NOISE
    for tokens in (0, 1, 2, 33, 300):
        assert_equal_layers(layers, chosen(tokens, k, MANY), dtype, bound)


SPREADS = {
    "all on one expert": torch.full((70, 1), 3),
    "all on the last": torch.full((3, 1), FEW - 1),
    "no expert at all": torch.full((4, 2), -1),
    "one expert twice": torch.tensor([[2, 2], [0, 2], [2, -1]]),
    "every second expert": torch.tensor([[0, 4], [4, 2], [2, 0]]),
    "numbers of no expert": torch.tensor([[0, FEW], [1000, 3], [-7, 2**31 - 1]]),
}


@pytest.mark.parametrize("spread", SPREADS)
@forms_of(*SOME)
def test_however_tokens_are_spread(isa, form, spread):
    ids = SPREADS[spread].int()
    x, inner, weight = torch.randn(len(ids), K), torch.randn(ids.numel(), K), torch.rand(ids.shape)
    x, inner = x.bfloat16(), inner.bfloat16()
    known = torch.where((ids < 0) | (ids >= FEW), -1, ids)
    into, out = widen(form), narrow(form)
    y, z = into(x, ids), out(inner, weight, ids)
    for found, due in ((y, into.expected(x, known)), (z, out.expected(inner, weight, known))):
        assert found.isfinite().all()
        assert (error(found, due) < NOISE) if due.any() else not found.any()


@forms_of(*SOME)
@pytest.mark.parametrize("tokens", [1, 300])
def test_results_of_many_outputs_are_added_up_in_parts(isa, form, tokens):
    """Those of 2,400 rows are more than a thread keeps at a time."""
    out, ids = narrow(form, 520, bias=True), chosen(tokens, 4)
    ids = torch.cat([ids, ids], dim=1).contiguous()
    inner, weight = torch.randn(8 * tokens, K).bfloat16(), torch.rand(tokens, 8)
    assert error(out(inner, weight, ids), out.expected(inner, weight, ids)) < NOISE


MIXED = {
    "widths that are no panels": ([WeightForm()] * 2, (24, 40), [Format.BF16] * 2),
    "blocks of two types": ([WeightForm(codes="gguf:Q4_K"), WeightForm(codes="gguf:Q6_K")], (48, 32), None),
    "an order of each expert's own": ([int4(64, ordered=True)] * 2, (48, 48), [Format.BF16]),
    "another form for one expert": ([Q4_0] * 9 + [WeightForm()], (48, 48), [Format.Q4_0, Format.BF16]),
}


@pytest.mark.parametrize("tokens", [1, 5, 40])
@pytest.mark.parametrize("case", MIXED)
def test_parts_that_are_not_alike(isa, case, tokens):
    forms, rows, kinds = MIXED[case]
    into = Layer(ExpertsIn, ReferenceExpertsIn, forms, rows)
    assert [run.kind for run in into.product._runs] == (kinds or [Format.Q4_K, Format.Q6_K])
    x, ids = torch.randn(tokens, K).bfloat16(), chosen(tokens, 2)
    assert error(into(x, ids), into.expected(x, ids)) < NOISE


@pytest.mark.parametrize("asked", [False, True])
@forms_of(Q4_0, int4(64, zeros=True), int8(activations="int8:token"))
def test_what_a_token_gives_is_independent_of_others_where_it_is_asked_for(isa, form, asked):
    into, out = widen(form, (K, K), batch_invariant=asked), narrow(form, batch_invariant=asked)
    x, weight, ids = torch.randn(60, K).bfloat16(), torch.rand(60, 2), torch.rand(60, FEW).argsort(1)[:, :2].int()

    def results(some):
        own = ids[some].contiguous()
        return out(silu_and_mul(into(x[some], own)), weight[some], own)

    alone = torch.cat([results(slice(token, token + 1)) for token in range(60)])
    always = form.activations == "int8:token"  # rounded for each token, by what the form says
    assert torch.equal(results(slice(None)), alone) == (asked or always)


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@forms_of(*SOME)
def test_every_division_among_threads_gives_the_same(isa, form, threads):
    before = torch.get_num_threads()
    into, out = widen(form, (160, 160), count=9), narrow(form, 520, count=9)
    x, ids = torch.randn(50, K).bfloat16(), chosen(50, 3, 9)
    inner, weight = torch.randn(150, K).bfloat16(), torch.rand(50, 3)
    try:
        torch.set_num_threads(1)
        alone = into(x, ids), out(inner, weight, ids)
        torch.set_num_threads(threads)
        assert torch.equal(into(x, ids), alone[0])
        assert torch.equal(out(inner, weight, ids), alone[1])
    finally:
        torch.set_num_threads(before)


@forms_of(*SOME)
def test_a_workspace_of_many_tokens_is_enough_for_fewer(isa, form):
    """Nothing is written behind what was asked for, whatever kernels serve."""
    k, most = 3, 90
    for layer, entry, outputs in ((widen(form), experts.EXPERTS_IN, 96), (narrow(form), experts.EXPERTS_OUT, 80)):
        (weight, _, _), out = next(layer.product._products(layer.params, torch.empty(0, outputs))), outputs == 80
        strides = (weight.data.stride(0), 0, K, outputs)
        kinds = (0, 0, weight.code, 3)
        needs = [experts.workspace_bytes(entry, (t, k, FEW, outputs, K, *strides, *kinds)) for t in range(most + 1)]
        assert needs == sorted(needs)
        space = torch.full((needs[-1] + 4096,), 99, dtype=torch.uint8)
        for tokens in (1, 2, 5, 17, 40, most):
            ids, scale = chosen(tokens, k), torch.rand(tokens, k)
            x, y = torch.randn(tokens * (k if out else 1), K), torch.empty(tokens * (1 if out else k), outputs)
            own = (scale, ids) if out else (ids,)
            places = [one.data_ptr() for one in (x, weight.data, *own)] + [0, y.data_ptr(), space.data_ptr()]
            entry(*places, tokens, k, FEW, outputs, K, *strides, *kinds)
            assert (space[needs[-1] :] == 99).all()


def test_rows_may_lie_apart():
    into, out, ids = widen(Q4_0), narrow(Q4_0), chosen(7, 2)
    wide = torch.randn(14, K + 64).bfloat16()[:, 32 : 32 + K]
    assert torch.equal(into(wide[:7], ids), into(wide[:7].contiguous(), ids))
    weight = torch.rand(7, 2)
    assert torch.equal(out(wide, weight, ids), out(wide.contiguous(), weight, ids))


ROUTINGS = {
    "softmax": Routing(top_k=8),
    "renormalised": Routing(top_k=8, renormalize=True),
    "one": Routing(top_k=1, renormalize=True, eps=1e-6),
    "all": Routing(top_k=MANY, factor=0.5),
    "chosen only": Routing(top_k=4, chosen_only=True),
    "chosen only, sigmoid": Routing(top_k=1, chosen_only=True, score="sigmoid"),
    "sigmoid": Routing(top_k=6, score="sigmoid", renormalize=True, eps=1e-20, factor=2.5),
    "corrected": Routing(top_k=8, score="sigmoid", correction=True, renormalize=True),
    "corrected logits": Routing(top_k=4, chosen_only=True, correction=True),
    "groups by their best": Routing(top_k=6, groups=8, top_groups=3, factor=16.0),
    "groups by two": Routing(
        top_k=8, score="sigmoid", correction=True, groups=8, top_groups=4, group_by="top2", renormalize=True
    ),
    "capped": Routing(top_k=2, cap=1.5),
    "capped sigmoids, corrected": Routing(top_k=6, score="sigmoid", correction=True, renormalize=True, cap=30.0),
    "chosen by capped logits": Routing(top_k=4, chosen_only=True, cap=8.0),
    "roots of softplus": Routing(
        top_k=6, score="sqrt_softplus", correction=True, renormalize=True, eps=1e-20, factor=1.5
    ),
    "more than the groups have": Routing(top_k=20, groups=8, top_groups=1),
}


@pytest.mark.parametrize("count", [MANY, 40])
@pytest.mark.parametrize("tokens", [0, 1, 33, 300])
@pytest.mark.parametrize("name", ROUTINGS)
def test_routing_is_that_of_the_reference(isa, name, tokens, count):
    routing = ROUTINGS[name].replace(top_k=min(ROUTINGS[name].top_k, count))
    logits = 3 * torch.randn(tokens, count + 5)[:, :count]
    correction = torch.randn(count) if routing.correction else None
    weight, ids = route(logits, correction, routing)
    assert weight.dtype is torch.float32 and ids.dtype is torch.int32
    assert weight.shape == ids.shape == (tokens, routing.top_k)
    due, wanted = reference_route(logits, correction, routing) if tokens else (weight, ids)
    kept = wanted if name != "more than the groups have" else wanted[:, : count // 8]
    # What is left when the groups have no more is any of the others.
    assert torch.equal(ids[:, : kept.shape[1]], kept)
    torch.testing.assert_close(weight[:, : kept.shape[1]], due[:, : kept.shape[1]], rtol=1e-5, atol=1e-7)
    assert all(len(set(row)) == routing.top_k for row in ids.tolist())


def test_of_equal_scores_the_first_experts_are_chosen_and_none_twice(isa):
    for logits in (torch.zeros(2, 20), torch.full((2, 20), -torch.inf), torch.full((2, 20), torch.nan)):
        _, ids = route(logits, None, Routing(top_k=4))
        assert ids.tolist() == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("tokens", "size", "top_k"), [(0, 64, 2), (1, 1, 1), (5, 67, 3), (300, 256, 12)])
def test_identities_add_what_they_are_weighed_with(isa, tokens, size, top_k, dtype):
    out, x = (torch.randn(tokens, size + 3).to(dtype)[:, :size] for _ in range(2))
    weight, ids = torch.rand(tokens, top_k), torch.randint(-1, 9, (tokens, top_k)).int()
    found = add_identities(out, x, weight, ids, 5)
    due = reference_add_identities(out.float(), x.float(), weight, ids, 5)
    assert found.dtype is dtype
    torch.testing.assert_close(found.float(), due, rtol=1e-6 if dtype is torch.float32 else 2**-8, atol=1e-6)


def test_identities_refuse_what_does_not_belong_together():
    x, weight, ids = torch.randn(3, 8), torch.rand(3, 2), torch.zeros(3, 2, dtype=torch.int32)
    wrong = [
        (x[:2], x, weight, ids), (x.bfloat16(), x, weight, ids), (x, x, weight[:2], ids), (x, x, weight, ids[:, :1]),
        (x, x, weight.double(), ids), (x, x, weight, ids.long()), (x, x, weight.t().contiguous().t(), ids),
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(ValueError, match="add_identities"):
            add_identities(*given, 1)


def test_routing_refuses_what_it_cannot_choose():
    logits = torch.randn(2, 12)
    for routing in (Routing(top_k=13), Routing(top_k=1, groups=5), Routing(top_k=1, groups=12, group_by="top2")):
        with pytest.raises(ValueError, match="12 experts"):
            route(logits, None, routing)
    with pytest.raises(ValueError, match="do not fit"):
        route(logits, torch.randn(11), Routing(top_k=1, correction=True))
    request = KernelRequest(op="route", device="cpu", dtype="float32", dims={"experts": 4096, "top_k": 8})
    assert CPU_ROUTE.check(request).reasons == ("experts 4096 is outside 1 to 2048",)


@pytest.mark.parametrize("name", ["cpu_linear", "dense"])
def test_logits_of_a_router_are_float32_and_no_option_rounds_what_they_are_made_of(name):
    site = LayerSite("router", "layer.gate", K, [("", MANY)])
    x, part = torch.randn(40, K).bfloat16(), weights(WeightForm(), MANY)
    product = make(name, site, [WeightForm()])
    logits = product.apply(x, packed(product, [part]))
    assert logits.dtype is torch.float32
    torch.testing.assert_close(logits, x.float() @ part.dense(torch.bfloat16).float().T, rtol=1e-4, atol=1e-4)
    if name == "cpu_linear":
        rounding = make(name, site, [Q4_0], activations="int8")
        params = packed(rounding, [weights(Q4_0, MANY)])
        together = rounding.apply(x, params)
        assert error(together, x.float() @ weights(Q4_0, MANY).dense(torch.float32).T) < 1e-3
        assert torch.equal(together, torch.cat([rounding.apply(row[None], params) for row in x]))


@pytest.mark.parametrize(
    ("form", "inputs", "reason"),
    [
        (int4(64), 256, ""),
        (int4(48), 96, "groups of 48 inputs are no whole blocks of 32"),
        (int4(64, ordered=True), 256, "rearranged (act-order)"),
        (WeightForm(), 80, ""),
        (Q4_0, 80, ""),
    ],
)
def test_selection_knows_which_forms_have_a_kernel(form, inputs, reason):
    dims, facts = {"inputs": inputs, "outputs": 48, "experts": 8}, {"kind": "experts", "method": "none"}
    request = KernelRequest(op="experts_in", device="cpu", dtype="bfloat16", dims=dims, form=form.key, facts=facts)
    found = [*CPU_EXPERTS_IN.check(request).reasons, *refine(request, ProbeResult(available=True)).reasons]
    assert reason in found[0] if reason else not found


class Model:
    """Embeds, normalises, and has one mixture of experts."""

    def __init__(self, form, dtype):
        self.table, self.norm = torch.randn(50, K).to(dtype), (torch.rand(K) + 0.5).to(dtype)
        self.router = make("dense", LayerSite("router", "gate", K, [("", FEW)]), [WeightForm()], dtype)
        self.scores = packed(self.router, [weights(WeightForm(), FEW)])
        kinds = (ExpertsIn, ExpertsOut) if dtype is torch.bfloat16 else (DenseExpertsIn, DenseExpertsOut)
        self.into = widen(form, (K, K), kind=kinds[0], dtype=dtype)
        self.out = narrow(form, K, kind=kinds[1], dtype=dtype)
        self.routing = Routing(top_k=2, renormalize=True)

    def forward(self, step):
        x = elementwise.rms_norm(elementwise.gather(self.table, step.token_ids), self.norm, 1e-5)
        weight, ids = route(self.router.apply(x, self.scores), None, self.routing)
        return elementwise.rms_norm(self.out(silu_and_mul(self.into(x, ids)), weight, ids), self.norm, 1e-5)


def step_of(tokens, seed=0):
    step = PaddedStep.of(tokens)
    ids = torch.randint(0, 50, (tokens,), generator=torch.Generator().manual_seed(seed))
    places = torch.arange(tokens)
    return SimpleNamespace(token_ids=ids, positions=places, plan=step.plan, plans=step.plans, states=None, keep=step)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@forms_of(*SOME)
def test_a_program_has_no_cut_and_equals_the_forward_pass(isa, form, dtype):
    model, facet = Model(form, dtype), ProgramGraphs()
    with torch.inference_mode():
        graph = facet.capture(model.forward, step_of(3))
        assert isinstance(graph, ProgramGraph), facet.refused
        assert facet.describe() == "9 calls"
        for seed, tokens in enumerate((1, 2, 3, 7, 16, 33, 256, CAPACITIES[0], 5, 1)):
            step = step_of(tokens, seed)
            assert torch.equal(graph.replay(step), model.forward(step)), f"{tokens} tokens"
