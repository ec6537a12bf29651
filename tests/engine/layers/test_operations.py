"""Which form a layer is given, whose it is, and layers of plugins' own kinds."""

from __future__ import annotations

import logging

import pytest
import torch
from torch.nn import functional

from core.api import KernelSpec, LayerSite, Part, PluginError, Product, Stored, Verdict, WeightForm, WrappedProduct
from core.api.kernels import DimRule
from core.layers.builder import Builder
from core.layers.guard import Owners
from core.layers.kernels import KernelTable, PlannedKernel, PlannedReference
from core.ops import rms_norm
from core.ops.products import ReferenceProduct
from core.worker.loader import warn_opened
from core_testing.conformance.tools.tensors import PlainTensor
from core_testing.layers import fill

CPU = torch.device("cpu")
INT4 = WeightForm(codes="int", bits=4, inputs=8)
FIELDS = {"impl": "acme:form", "api": 1, "summary": "", "devices": {"cpu"}, "dtypes": {"float32"}}


class Groups:
    """A format of 4-bit codes with a scale for 8 inputs."""

    def form(self, site, part):
        return INT4 if site.kind != "embedding" else WeightForm(codes="acme")

    def stored(self, site, part):
        return (Stored("codes"), Stored("scales", per=(1, 8)))

    def read(self, site, part, tensors):
        return Part(INT4, tensors["codes"].raw().to(torch.int8), scales=tensors["scales"].raw())


class Outer(ReferenceProduct):
    """The reference form of an operation with two inputs: the weight times all products of their elements."""

    def apply(self, left, right, params):
        return functional.linear((left[:, :, None] * right[:, None, :]).flatten(1), params["weight"])


class Broken(Outer):
    def apply(self, left, right, params):
        raise KeyError("boom")


def kernel(name, form, **fields):
    return PlannedKernel(KernelSpec(name=name, **{**FIELDS, **fields}), "acme 1.0", lambda: form)


def product(name, made, op="linear", forms=("*",), **fields):
    return kernel(name, lambda place: made(place, {}), op=op, forms=forms, **fields)


def builder(*planned, commanded=(), wrap=None):
    references = {
        "acme_outer": PlannedReference("acme 1.0", lambda: lambda place: Outer(place, {}), multiplies=True),
        "acme_mix": PlannedReference("acme 1.0", lambda: mix),
    }
    table = KernelTable("cpu", "float32", planned, commanded, references)
    owners = Owners("the model 'm'", quantization="the format 'f'")
    made = Builder(Groups(), object(), device=CPU, dtype=torch.float32, kernels=table, owners=owners, wrap=wrap)
    return made, table


def mix(x, *, share=0.5):
    return x * share


def outer_layer(build):
    return build.weights("bilinear", "acme_outer", "pair", 16, {"a": 3, "b": 2}, dims={"left": 4, "right": 4})


OWN = {"op": "acme_outer", "reference": "acme:Outer"}


@pytest.mark.parametrize(
    ("planned", "told"),
    [
        ((), "acme_outer: reference (int4/1x8:float32 x2)"),
        ((product("quick", Outer, **OWN, dims={"left": DimRule(most=4)}),), "acme_outer: quick (int4/1x8:float32 x2)"),
        (
            (product("large", Outer, **OWN, dims={"left": DimRule(least=5)}),),
            "acme_outer: reference (int4/1x8:float32 x2)",
        ),
        (
            (product("plain", Outer, op="acme_outer", reference="a:b", forms=("plain*",)),),
            "acme_outer: reference (int4",
        ),
    ],
)
def test_a_layer_of_a_plugins_own_kind_has_weights_in_any_form(planned, told):
    build, table = builder(*planned)
    layer = outer_layer(build)
    rng = torch.Generator().manual_seed(1)
    codes = {name: torch.randint(-8, 8, (rows, 16), generator=rng) for name, rows in {"a": 3, "b": 2}.items()}
    scales = {name: torch.rand(len(one), 2, generator=rng) for name, one in codes.items()}
    fill(
        layer.group,
        [
            *[PlainTensor(f"pair.{name}.codes", one) for name, one in codes.items()],
            *[PlainTensor(f"pair.{name}.scales", one) for name, one in scales.items()],
        ],
    )
    meant = torch.cat([codes[name] * scales[name].repeat_interleave(8, 1) for name in "ab"])
    left, right = torch.randn(5, 4, generator=rng), torch.randn(5, 4, generator=rng)
    due = torch.einsum("ti,tj,oij->to", left, right, meant.view(5, 4, 4))
    torch.testing.assert_close(layer(left, right), due)
    assert layer.splits == [3, 2] and layer.site.kind == "bilinear"
    assert table.describe().startswith(told)


def test_whose_code_raised_is_told():
    build, _ = builder(
        product("quick", Broken, **OWN), kernel("mixer", lambda x, share=0.5: 1 / 0, op="acme_mix", reference="a:b")
    )
    layer = outer_layer(build)
    layer.params = {}
    text = r"CORE-P108 kernel 'quick' \(acme 1.0\), bilinear 'pair' of the model 'm': it raised KeyError: 'boom'"
    with pytest.raises(PluginError, match=text):
        layer(torch.ones(1, 4), torch.ones(1, 4))
    text = r"CORE-P108 kernel 'mixer' \(acme 1.0\), operation 'acme_mix' of the model 'm': it raised ZeroDivisionError"
    with pytest.raises(PluginError, match=text):
        build.operation("acme_mix", size=4)(torch.ones(1))
    reference = builder()[0].operation("acme_mix")
    assert reference(torch.ones(1), share=0.25) == 0.25
    with pytest.raises(PluginError, match=r"CORE-P108 reference form of acme_mix \(acme 1.0\)"):
        reference(None)


class Faulty(ReferenceProduct):
    def sizes(self):
        raise KeyError("boom")


class Unmade(ReferenceProduct):
    def __init__(self, place, options):
        raise KeyError("boom")


class Misspelt(ReferenceProduct):
    def lookup(self, ids, params): ...


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (Faulty, r"CORE-P108 kernel 'k' \(acme 1.0\): sizes\(\) of linear 'up' raised KeyError"),
        (Unmade, r"CORE-P108 kernel 'k' \(acme 1.0\): its constructor raised KeyError"),
        (
            Misspelt,
            r"CORE-P160 kernel 'k' \(acme 1.0\): its constructor handed out .* it has lookup, which nobody calls",
        ),
    ],
)
def test_a_product_that_cannot_be_made_is_its_kernels_fault(made, told):
    with pytest.raises(PluginError, match=told):
        builder(product("k", made))[0].linear(16, 4, "up")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda layer: type("Odd", (WrappedProduct,), {"aply": print})(layer), "it has aply, which nobody calls"),
        (lambda layer: object(), "it is no subclass of core.api.Product"),
    ],
)
@pytest.mark.parametrize("ask", [lambda build: build.linear(16, 4, "up"), outer_layer])
def test_what_a_hook_makes_of_a_product_is_a_product(ask, answer, told):
    build, _ = builder(wrap=lambda site, layer: answer(layer))
    with pytest.raises(PluginError, match=f"CORE-P160 hook plugins: core_layer .*{told}"):
        ask(build)


@pytest.mark.parametrize("ask", [lambda build: build.linear(16, 4, "up"), outer_layer])
def test_a_wrapped_product_stands_in_for_the_other(ask):
    build, _ = builder(wrap=lambda site, layer: WrappedProduct(layer))
    layer = ask(build)
    assert isinstance(layer.group.product, WrappedProduct) and layer.group.sizes == layer.group.product.inner.sizes()


def refuse(path, request):
    assert (path, request.dims["inputs"], request.facts) == ("acme:refine", 16, {"kind": "linear", "method": "none"})
    return Verdict.of("inputs are too few")


@pytest.mark.covers("QUANT-03")
def test_a_commanded_product_that_cannot_take_a_form_stops_with_every_reason():
    spec = KernelSpec(name="picky", op="linear", forms=("int*",), refine="acme:refine", **FIELDS)
    picky = PlannedKernel(spec, "acme 1.0", lambda: None, refuse)
    other = product("eight", ReferenceProduct, forms=("int8*",), dims={"outputs": DimRule(multiple_of=64)})
    build, _ = builder(picky, other, commanded={"linear"})
    with pytest.raises(PluginError, match="CORE-P201 ") as caught:
        build.linear(16, 4, "up")
    for reason in (
        "'picky' (acme 1.0)",
        "inputs are too few",
        "'eight'",
        "int4/1x8:float32@as_is, not int8*",
        "outputs 4",
    ):
        assert reason in caught.value.message
    assert "linear=NAME,reference" in caught.value.hint
    assert builder(picky, other)[1].pick("rms_norm", size=4) is rms_norm


def test_a_form_that_nobody_multiplies_with_is_warned_of_once_with_what_it_costs(caplog):
    build, table = builder(product("plain", ReferenceProduct, forms=("plain*",)))
    for name in ("up", "down"):
        build.linear(1 << 14, 1 << 14, name)
    with caplog.at_level(logging.WARNING):
        warn_opened(table, ["linear=reference"])
        assert not caplog.records
        warn_opened(table, [])
    (record,) = caplog.records
    assert "CORE-P239" in record.message and "int4/1x8:float32" in record.message and "2.00 GiB" in record.message
    assert table.describe() == "linear: reference (int4/1x8:float32 x2)"


def test_operations_are_asked_for_as_what_they_are():
    build, _ = builder()
    for ask, code in (
        (lambda: build.operation("acme_none"), "CORE-P237 .*known are acme_mix, acme_outer, add_bias, add_identities"),
        (lambda: build.operation("linear"), "CORE-P238 .*'linear'.*multiplies with weights"),
        (lambda: build.weights("k", "acme_mix", "p", 4, {"": 4}), "CORE-P238 .*multiplies with no weights"),
        (lambda: build.weights("k", "acme_none", "p", 4, {"": 4}), "CORE-P237"),
    ):
        with pytest.raises(PluginError, match=code):
            ask()


def test_the_site_of_such_a_layer_is_what_formats_are_asked_for():
    site = outer_layer(builder()[0]).site
    assert site == LayerSite("bilinear", "pair", 16, [("a", 3), ("b", 2)])
    assert issubclass(Outer, Product)
