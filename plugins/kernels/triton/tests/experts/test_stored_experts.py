"""Products with experts' weights as they are stored, in the interpreter, against the reference products in float64."""

from dataclasses import replace

import pytest
import torch
from core_plugin_kernels_triton.experts.spec import STORED_EXPERTS_IN
from core_plugin_kernels_triton.experts.stored import StoredExpertsIn, StoredExpertsOut
from core_plugin_kernels_triton.products import layers
from core_plugin_kernels_triton.products.cards import Card
from core_plugin_kernels_triton.products.refine import product as refine

from core.api import CoreError, LayerSite, ProbeResult, ProductPlace
from core.api.kernels import KernelRequest
from core.ops.experts import ReferenceExpertsIn, ReferenceExpertsOut
from core_testing.conformance.tools.parts import plain_part

from ..products.bench import activations, bordered, inputs_of, off, same_bits
from ..products.weights import BLOCKS, FORMS, GROUPS, INT8, TABLES, Exact, e2m1, float8, ints, weights

CPU, EXPERTS, TOP_K = torch.device("cpu"), 4, 2
QWEN, AWQ, ACT_ORDER = float8(16, 128, activations="float8:128"), ints(4, 32, zeros=True), GROUPS[7]
MXFP4, NVFP4, STATIC = e2m1(32, "e8m0"), e2m1(16, "e4m3", "e2m1:16"), float8(0, activations="float8:tensor")
MXFP4_BY_MXFP4 = e2m1(32, "e8m0", "e2m1:32")
QUICK = [QWEN, AWQ, ACT_ORDER, MXFP4, MXFP4_BY_MXFP4, NVFP4, STATIC, INT8[3], TABLES[0], BLOCKS[0], BLOCKS[7]]
TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}


class Bench:
    """A product with random weights of a form for each matrix of an expert, and the reference product."""

    def __init__(self, kind, forms, rows, inputs, *, dtype=torch.float32, bias=True, parts=None):
        named = [(f"{expert}.{part}", size) for expert in range(EXPERTS) for part, size in enumerate(rows)]
        every = tuple(forms) if len(forms) == len(named) else tuple(forms) * EXPERTS
        site = LayerSite("experts", "layer.experts", inputs, named, bias, experts=EXPERTS)
        self.place = ProductPlace(site, every, CPU, dtype)
        self.parts = parts or [
            weights(form, size, inputs, seed, bias=bias) for seed, (form, (_, size)) in enumerate(zip(every, named))
        ]
        self.product = kind(self.place, {})
        self.params = self.filled(self.product)
        exact = ReferenceExpertsIn if kind is StoredExpertsIn else ReferenceExpertsOut
        self.reference = exact(replace(self.place, dtype=torch.float32), {})
        self.reference._each = [Exact(one.place, {}) for one in self.reference._each]

    def filled(self, product, order=None):
        """Pack the parts into memory that held something else."""
        params = {name: torch.full(shape, 77, dtype=dtype) for name, (shape, dtype) in product.sizes().items()}
        for index in order or range(len(self.parts)):
            product.pack(self.parts[index], index, params)
        return product.finish(params)

    def __call__(self, x, *routed):
        return self.product.apply(x, *routed, self.params)

    def due(self, x, *routed):
        """Return the reference product's result: sums in float64 of activations that are rounded in float32."""
        params = self.filled(self.reference)
        wide = {name: one if name == "input_scales" else one.double() for name, one in params.items()}
        return self.reference.apply(x.float(), *routed, wide)


def routed(tokens, seed=0):
    """Return weights and ids of different experts of each token; some have none."""
    rng = torch.Generator().manual_seed(seed)
    ids = torch.rand(tokens, EXPERTS, generator=rng).argsort(1)[:, :TOP_K].int().contiguous()
    ids[::4, 1] = -1
    ids[5::8, 0] = EXPERTS + 2
    return torch.rand(tokens, TOP_K, generator=rng), ids


def held(form, counts, dtype=torch.float32, rows=(24, 40)):
    """Hold both products to the reference; rows between others, and those without an expert, are not numbers."""
    inputs = inputs_of(form)
    into = Bench(StoredExpertsIn, [form] * len(rows), rows, inputs, dtype=dtype)
    out = Bench(StoredExpertsOut, [form], (40,), inputs, dtype=dtype)
    for tokens in counts:
        shares, ids = routed(tokens)
        found = into(apart(activations(tokens, inputs, dtype)), ids)
        assert found.shape == (ids.numel(), sum(rows)) and found.dtype == dtype
        assert off(found, into.due(activations(tokens, inputs, dtype), ids)) < TOLERANCE[dtype]
        inner = activations(ids.numel(), inputs, dtype, seed=6)
        due = out.due(inner, shares, ids)
        inner[int(((ids >= 0) & (ids < EXPERTS)).sum()) :] = torch.nan
        assert off(out(apart(inner), shares, ids), due) < TOLERANCE[dtype]


def apart(x):
    """Return the same numbers in rows with NaN and infinity between them."""
    wide = torch.full((len(x) + 1, x.shape[1] + 7), torch.nan, dtype=x.dtype)
    wide[:, ::2] = torch.inf
    return wide[:-1, 3 : 3 + x.shape[1]].copy_(x)


@pytest.mark.covers("MOE-07", "MOE-08", "QUANT-01")
@pytest.mark.parametrize("form", QUICK, ids=lambda one: one.key)
def test_a_form_gives_what_the_reference_products_give(form):
    held(form, (3,))


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", FORMS, ids=lambda one: one.key)
def test_every_form_gives_what_the_reference_products_give(form):
    """With a tile that begins at each row, and with dense tiles."""
    held(form, (1, 5, 37))


@pytest.mark.parametrize("form", [MXFP4, QWEN], ids=lambda one: one.key)
def test_dense_tiles(form):
    held(form, (37,), rows=(24,))


@pytest.mark.parametrize("form", [NVFP4, MXFP4_BY_MXFP4], ids=lambda one: one.key)
def test_cards_that_do_not_multiply_runs_with_scales_open_them(form, monkeypatch):
    monkeypatch.setattr(layers, "card", lambda device: Card(float8=False))
    held(form, (3,), rows=(24,))


@pytest.mark.parametrize("form", [AWQ, INT8[3]], ids=lambda one: one.key)
def test_short_types_are_as_near_as_their_rounding(form):
    held(form, (5,), torch.bfloat16)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("form", FORMS, ids=lambda one: one.key)
def test_every_form_in_short_types(form, dtype):
    held(form, (5, 19), dtype)


def test_matrices_of_an_expert_may_have_different_forms():
    """Each is a run of its own; biases are those of its rows."""
    bench = Bench(StoredExpertsIn, [BLOCKS[7], BLOCKS[9]], (24, 40), 256)
    assert {"codes_0", "codes_1"} < bench.params.keys()
    _, ids = routed(3)
    assert off(bench(activations(3, 256), ids), bench.due(activations(3, 256), ids)) < 3e-6


def test_experts_of_different_forms_are_opened():
    bench = Bench(StoredExpertsOut, [AWQ, MXFP4, AWQ, ints(8, 64)], (24,), 192)
    assert bench.params.keys() == {"weight", "bias"} and bench.params["weight"].shape == (EXPERTS, 24, 192)
    shares, ids = routed(3)
    x = activations(ids.numel(), 192)
    assert off(bench(x, shares, ids), bench.due(x, shares, ids)) < 3e-6


def test_experts_of_different_forms_that_round_activations_are_refused():
    with pytest.raises(
        CoreError, match=r"layer\.experts are stored in several forms, of which int8/.*int8:token"
    ) as one:
        Bench(StoredExpertsIn, [INT8[3], AWQ, AWQ, AWQ], (24,), 192)
    assert one.value.code == "CORE-M160" and "experts_in=reference" in one.value.hint


@pytest.mark.parametrize(
    ("form", "dims", "reason"),
    [
        ("gguf:Q4_K@as_is", {"inputs": 320}, "320 inputs are no whole blocks of 256"),
        ("gguf:IQ2_XS@as_is", {"inputs": 256}, "weights of the form gguf:IQ2_XS@as_is, not"),
        ("int4/1x32:float32@int4:token", {"inputs": 64}, "activations 'int4:token' are none of"),
        ("e2m1/1x32:e5m3@as_is", {"inputs": 64}, "scales 'e5m3' are none of"),
        ("e2m1/1x32:e8m0@as_is", {"inputs": 64, "experts": 1024}, "experts 1024 is outside 1 to 1023"),
        ("e2m1/1x16:e4m3@e2m1:16", {"inputs": 64}, ""),
    ],
)
def test_what_is_not_served_is_refused_with_the_reason(form, dims, reason):
    dims = {"experts": 8, "outputs": 64, **dims}
    request = KernelRequest(op="experts_in", device="cuda", dtype="bfloat16", dims=dims, form=form)
    reasons = (*STORED_EXPERTS_IN.check(request).reasons, *refine(request, ProbeResult(available=True)).reasons)
    assert reason in " ".join(reasons) if reason else reasons == ()


@pytest.mark.parametrize("form", [AWQ, NVFP4, BLOCKS[0]], ids=lambda one: one.key)
def test_packing_in_any_order_gives_equal_bytes_of_the_form_s_size(form):
    bench = Bench(StoredExpertsIn, [form] * 2, (512, 512), 1024, bias=False)
    again = bench.filled(bench.product, order=[5, 0, 7, 2, 1, 6, 3, 4])
    assert all(torch.equal(one, again[name]) for name, one in bench.params.items())
    bits = {AWQ: 4 + 64 / 32, NVFP4: 4 + 8 / 16, BLOCKS[0]: 4.5}[form]
    due = EXPERTS * 1024 * 1024 * bits / 8
    assert due <= sum(one.nbytes for one in bench.params.values()) <= due + 4 * EXPERTS * 1024 + 64


def test_plain_numbers_of_an_update_are_rounded_to_the_form():
    parts = [plain_part(activations(24, 192, seed=expert)) for expert in range(EXPERTS)]
    bench = Bench(StoredExpertsIn, [ints(8, 64)], (24,), 192, bias=False, parts=parts)
    _, ids = routed(3)
    assert off(bench(activations(3, 192), ids), bench.due(activations(3, 192), ids)) < 0.02


@pytest.mark.parametrize("form", [ACT_ORDER, INT8[3], QWEN], ids=lambda one: one.key)
def test_nothing_is_read_beside_the_parameters(form):
    bench = Bench(StoredExpertsIn, [form], (24,), 200)
    _, ids = routed(9)
    wanted = bench(activations(9, 200), ids)
    around = {name: bordered(one) for name, one in bench.params.items()}
    assert same_bits(bench.product.apply(activations(9, 200), ids, around), wanted)


@pytest.mark.parametrize("form", [AWQ, QWEN], ids=lambda one: one.key)
def test_a_token_s_result_does_not_depend_on_the_others(form):
    """Bit for bit: alone, where a tile begins at each row, and among many, where tiles are dense."""
    into, out = Bench(StoredExpertsIn, [form], (24,), 200), Bench(StoredExpertsOut, [form], (32,), 24)
    shares, ids = routed(40)
    x = activations(40, 200)
    many = out(into(x, ids), shares, ids)
    for token in (0, 17, 39):
        of = slice(token, token + 1)
        assert torch.equal(out(into(x[of], ids[of]), shares[of], ids[of]), many[of])


def test_a_strange_token_is_alone_with_it():
    bench = Bench(StoredExpertsOut, [MXFP4], (24,), 64)
    shares, ids = routed(4)
    ids[:] = torch.tensor([0, 1])
    x = activations(8, 64)
    wanted = bench(x, shares, ids)
    x[2] = torch.nan  # of the third token, by its first expert
    found = bench(x, shares, ids)
    assert found[2].isnan().all() and torch.equal(found[[0, 1, 3]], wanted[[0, 1, 3]])


@pytest.mark.parametrize("form", [AWQ, QWEN, NVFP4, STATIC], ids=lambda one: one.key)
def test_no_tokens_and_no_experts(form):
    into, out = Bench(StoredExpertsIn, [form], (24,), 200), Bench(StoredExpertsOut, [form], (24,), 200)
    shares, ids = routed(0)
    assert into(torch.empty(0, 200), ids).shape == (0, 24)
    assert out(torch.empty(0, 200), shares, ids).shape == (0, 24)
    nobody = torch.full((3, TOP_K), -1, dtype=torch.int32)
    assert not into(activations(3, 200), nobody).any()
    assert not out(activations(6, 200), torch.ones(3, TOP_K), nobody).any()
