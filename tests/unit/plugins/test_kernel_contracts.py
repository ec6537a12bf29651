"""Kernels are held against the reference form of their operation where they are bound, products against `Product`."""

from __future__ import annotations

import types

import pytest

from core.api import KernelSpec, PluginError, Product, WrappedProduct
from core.plugins.contracts import OWN_PRODUCT, PRODUCT, check_contract
from core.plugins.drivers import objects_of
from core.plugins.entry import Entry
from core.plugins.fitting import misfits_of

MINE = Entry("core.kernels", "mine", "acme", "1.0", "acme:MINE")
COMMON = {"name": "mine", "impl": "acme:form", "api": 1, "summary": "", "devices": {"cpu"}, "dtypes": {"float32"}}


class Two(Product):
    """The reference form of an operation with two inputs."""

    def apply(self, left, right, params): ...


@pytest.fixture
def reference(monkeypatch):
    """A module that an operation's reference forms are imported from."""
    import sys

    module = types.ModuleType("acme_reference")
    module.mix, module.Two = (lambda x, y, *, share=0.5: x), Two
    monkeypatch.setitem(sys.modules, "acme_reference", module)


def a_product(base=Product, **methods):
    return type("Mine", (base,), methods)


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (lambda x, y, *, share=0.5: x, None),
        (lambda *given, **named: given, None),
        (lambda x, y, share=0.5: x, None),
        (lambda x, y: x, "(x, y, *, share=0.5) is called, but its signature is (x, y)"),
        (lambda x, other, more, *, share: x, "is called, but its signature is (x, other, more, *, share)"),
        (3, "it is a int, which cannot be called"),
    ],
)
def test_a_form_has_the_signature_of_its_reference(reference, form, told):
    spec = KernelSpec(op="acme_mix", reference="acme_reference:mix", **COMMON)
    if told is None:
        check_contract(MINE, spec, "acme:form", form)
        return
    with pytest.raises(PluginError, match=r"CORE-P160 kernel 'mine' \(acme 1.0\).* operation acme_mix") as caught:
        check_contract(MINE, spec, "acme:form", form)
    assert told in caught.value.message


PRODUCTS = [
    (a_product(), None),
    (a_product(_rows=lambda self: 0), None),
    (a_product(aply=lambda self, x, params: x), "it has aply, which nobody calls; methods are apply, finish, look_up"),
    (a_product(sizes=lambda self, x: x), "sizes() is called, but its signature is sizes(x)"),
    (a_product(__init__=lambda self, place: None), "__init__(place, options) is called"),
    (type("Mine", (), dict(vars(Product))), "it is no subclass of core.api.Product"),
]


@pytest.mark.parametrize(("form", "told"), [*PRODUCTS, (a_product(Two), "apply(x, params) is called")])
def test_a_product_has_what_core_calls_and_nothing_else(form, told):
    spec = KernelSpec(op="linear", forms=("*",), **COMMON)
    if told is None:
        check_contract(MINE, spec, "acme:form", form)
        return
    with pytest.raises(PluginError, match=r"CORE-P160 .* does not fit Product") as caught:
        check_contract(MINE, spec, "acme:form", form)
    assert told in caught.value.message


@pytest.mark.parametrize(
    ("form", "told"),
    [
        *[(form, told) for form, told in PRODUCTS[2:]],
        (a_product(Two), None),
        (a_product(), "apply(left, right, params) is called, but its signature is apply(x, params)"),
    ],
)
def test_a_product_of_an_operation_of_plugins_is_applied_as_its_reference_is(reference, form, told):
    spec = KernelSpec(op="acme_two", reference="acme_reference:Two", forms=("*",), **COMMON)
    check_contract(MINE, spec, "acme_reference:Two", Two)
    if told is None:
        check_contract(MINE, spec, "acme:form", form)
        return
    with pytest.raises(PluginError, match="CORE-P160 ") as caught:
        check_contract(MINE, spec, "acme:form", form)
    assert told in caught.value.message


def test_what_makes_a_form_of_options_takes_them(reference):
    spec = KernelSpec(op="acme_mix", reference="acme_reference:mix", options="acme:Options", **COMMON)
    check_contract(MINE, spec, "acme:form", lambda options: None)
    with pytest.raises(PluginError, match=r"impl\(options\) is called, but its signature is impl\(\)"):
        check_contract(MINE, spec, "acme:form", lambda: None)


def test_a_reference_form_that_is_not_there_is_told(reference):
    spec = KernelSpec(op="acme_mix", reference="acme_reference:mixed", **COMMON)
    assert "acme_reference:mixed" in objects_of(spec)
    with pytest.raises(PluginError, match=r"CORE-P160 .*acme_reference:mixed: AttributeError"):
        check_contract(MINE, spec, "acme:form", print)


@pytest.mark.parametrize("contract", [PRODUCT, OWN_PRODUCT])
def test_what_wraps_a_product_is_one(contract):
    whole = types.SimpleNamespace(place=None, sizes=dict, pack=print, finish=print, apply=print, look_up=print)
    inner = type("Inner", (Two if contract is OWN_PRODUCT else Product,), {})(None, {})
    assert misfits_of(contract, a_product(WrappedProduct, apply=lambda self, x, params: x)(inner)) == []
    (told,) = misfits_of(contract, a_product(WrappedProduct, appply=lambda self, x, params: x)(inner))
    assert told.startswith("it has appply, which nobody calls")
    assert "it is no subclass of core.api.Product" in misfits_of(contract, whole)
