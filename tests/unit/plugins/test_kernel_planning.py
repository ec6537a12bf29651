"""Which kernels a start plans with: operations of plugins, products by the form of the weights, and the report."""

from __future__ import annotations

import pytest

from core.api import ConfigError, CoreError, KernelSpec, PluginError
from core.config.resolved import EngineConfig, Options
from core.selection.resolver import resolve

MANIFEST = """
from core.api import *

HERE = {"api": 1, "devices": {"host"}, "dtypes": {"bfloat16"}}
MIX = KernelSpec(name="mix", impl="acme:mix", op="acme_mix", reference="acme:mix", summary="", **HERE)
FAR = KernelSpec(name="far", impl="acme:mix", op="acme_far", reference="acme:mix", summary="", api=1, devices={"gpu"},
                 dtypes={"bfloat16"})
SHY = MIX.replace(name="shy", maturity="experimental")
FOUR = KernelSpec(name="four", impl="acme:Four", op="linear", forms=("int4/*",), refine="acme:refine", summary="",
                  **HERE)
EVEN = FOUR.replace(name="even", forms=("plain@*",), refine=None, band=3)
ROWS = EVEN.replace(name="rows", op="lookup")
STORED = QuantSpec(name="stored", impl="acme:Nothing", api=2, summary="", methods={"none"}, band=4,
                   forms_of="acme:forms_of")
"""
IMPL = """
from core.api import *

def mix(x): ...

def refine(request, probe):
    if request.facts["method"] != "none" or request.facts["kind"] != "linear" or request.dims:
        raise KeyError("facts")
    return Verdict.of("groups of 32 alone" if ":32" in request.form.replace("x", ":") else None)

def forms_of(checkpoint):
    coarse = WeightForm(codes="int", bits=4, inputs=128)
    return {WeightForm(codes="nf4"): 1, coarse: 7, PLAIN: 0, coarse.replace(inputs=32): 2}
"""
NAMES = {"mix": "MIX", "far": "FAR", "shy": "SHY", "four": "FOUR", "even": "EVEN", "rows": "ROWS"}


@pytest.fixture
def world(site):
    site.install_world()
    return site


@pytest.fixture
def start(world):
    """Return a function that resolves with acme's plugins."""
    kernels = {name: f"acme_manifest:{constant}" for name, constant in NAMES.items()}

    def start(*kernel, impl: str = IMPL, more: str = "", entries=()):
        points = {"core.kernels": {**kernels, **dict(entries)}, "core.quantization": {"stored": "acme_manifest:STORED"}}
        world.install("acme", points, {"acme_manifest": MANIFEST + more, "acme": impl})
        return resolve(Options.model_validate({"select": {"kernel": list(kernel)}}), catalogue=world.catalogue())

    return start


def planned(resolution) -> dict[str, bool]:
    return {one.name: one.reference_only for one in resolution.config.plan.of("core.kernels")}


def rows(resolution, subject: str = "host, bfloat16"):
    (report,) = (one for one in resolution.reports if one.group == "core.kernels" and one.subject == subject)
    return report.how, {row.name: (row.state, row.reasons) for row in report.rows}


def test_operations_of_plugins_are_planned_with_what_can_serve_or_with_their_reference_form(start):
    resolution = start()
    assert planned(resolution) == {"mix": False, "far": True, "even": False, "four": False, "rows": False}
    assert rows(resolution)[1]["shy"] == ("rejected", ("experimental: only used when asked for",))
    assert EngineConfig.model_validate_json(resolution.config.model_dump_json()).probe.capability == (1,)


@pytest.mark.parametrize(
    ("asks", "mix"),
    [
        (["acme_mix=shy"], {"shy": False}),
        (["acme_mix=shy", "mix"], {"shy": False, "mix": False}),
        (["acme_mix=reference"], {"mix": True}),
    ],
)
def test_kernels_of_such_an_operation_can_be_commanded(start, asks, mix):
    resolution = start(*asks)
    assert {name: alone for name, alone in planned(resolution).items() if name in ("mix", "shy")} == mix
    if "shy" in mix:
        assert rows(resolution)[1]["shy"] == ("ok", ())


@pytest.mark.parametrize(
    ("asks", "error", "text"),
    [
        (["acme_mis=mix"], ConfigError, "CORE-C142 .*'acme_mis'.*acme_mix"),
        (["far_off=mix"], ConfigError, "CORE-C142 .*Operations here: acme_far, acme_mix, add_bias, add_identities"),
        (["acme_far=mix"], PluginError, "CORE-P201 .*is one of acme_mix, not of acme_far"),
        (["acme_far=far"], PluginError, "CORE-P201 .*device host not in {gpu}"),
    ],
)
def test_what_is_asked_wrongly_is_refused(start, asks, error, text):
    with pytest.raises(error, match=text):
        start(*asks)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ('reference="other:mix"', "acme:mix, no product and other:mix, no product"),
        ('forms=("*",)', "acme:mix, a product and acme:mix, no product"),
    ],
)
def test_kernels_that_name_different_reference_forms_are_all_refused(start, fields, named):
    other = f'MINE = MIX.replace(name="mine", {fields})\n'
    resolution = start(more=other, entries={"mine": "acme_manifest:MINE"})
    told = f"kernels of acme_mix name different reference forms: {named}"
    found = rows(resolution)[1]
    assert all(told in found[name][1] for name in ("mix", "mine", "shy"))
    assert not {"mix", "mine", "shy"} & set(planned(resolution))


@pytest.mark.covers("QUANT-03")
def test_each_form_of_the_checkpoint_is_reported_with_its_product_and_why_not_the_others(start):
    resolution = start()
    how, found = rows(resolution, "weights int4/1x128:float32, 7 matrices")
    assert how == "linear: four, lookup: reference"
    assert found["four"] == ("chosen", ())
    assert found["even"] == ("rejected", ("weights of the form int4/1x128:float32@as_is, not plain@*",))
    how, found = rows(resolution, "weights int4/1x32:float32, 2 matrices")
    assert how == "linear: reference, lookup: reference"
    assert found["four"] == ("rejected", ("groups of 32 alone",))
    how, found = rows(resolution, "weights plain")
    assert how == "linear: even, lookup: rows"
    assert found["rows"] == found["even"] == ("chosen", ())
    assert rows(resolution, "weights nf4/1xall:float32, 1 matrix")[0] == "linear: reference, lookup: reference"


@pytest.mark.parametrize(
    ("asks", "how"),
    [
        (["linear=four"], "linear: none of those asked for (CORE-P201), lookup: rows"),
        (["linear=four", "even"], "linear: even, lookup: rows"),
        (["linear=four", "reference"], "linear: reference, lookup: rows"),
        (["linear=reference"], "linear: reference, lookup: rows"),
    ],
)
def test_commands_decide_the_product_in_the_report_too(start, asks, how):
    assert rows(start(*asks), "weights plain")[0] == how


def test_a_product_whose_own_check_raises_is_told_once_and_passed_over(start):
    resolution = start(impl=IMPL.replace('!= "none"', '== "none"'))
    how, found = rows(resolution, "weights int4/1x128:float32, 7 matrices")
    assert how == "linear: reference, lookup: reference" and found["four"][0] == "failed"
    (warning,) = [one for one in resolution.warnings if "four" in one.message]
    assert warning.code == "CORE-P108" and "KeyError: 'facts'" in warning.message


@pytest.mark.parametrize("given", ["[]", "{'int4': 1}", "checkpoint.nothing"])
def test_a_method_that_tells_forms_wrongly_is_named(start, given):
    with pytest.raises(CoreError, match=r"CORE-P108 quantization method 'stored'.*acme:forms_of"):
        start(impl=IMPL + f"\ndef forms_of(checkpoint):\n    return {given}\n")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"op": "acme_mix"}, "reference: acme_mix is no operation of core"),
        ({"op": "rms_norm", "reference": "a:b"}, "reference: rms_norm is an operation of core"),
        ({"op": "linear"}, "forms: linear multiplies with weights"),
        ({"op": "rms_norm", "forms": ("*",)}, "forms: rms_norm multiplies with no weights"),
        ({"op": "a=b", "reference": "a:b"}, "op: 'a=b' is no name of an operation"),
    ],
)
def test_a_descriptor_that_contradicts_itself_is_refused_where_it_is_made(fields, told):
    with pytest.raises(ValueError, match=f"KernelSpec: {told}"):
        KernelSpec(name="k", impl="m:k", api=1, summary="", devices={"cpu"}, dtypes={"float32"}, **fields)
