"""Parts of weights in every form that the products meet, and layers made of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from core_plugin_cpu.native.blocks import FORMATS
from core_plugin_cpu.products.layers import LinearProduct, LookupProduct, PackedProduct
from core_plugin_cpu.products.tables import VALUES

from core.api import Part, ProductPlace, WeightForm
from core.ops.products import ReferenceProduct, opened
from core_testing.conformance.tools.parts import random_part

from .stored import BEHIND, FEW_BITS, decoded, stored_blocks

K = 256
OPENED = ("gguf:TQ2_0",)
"""Blocks without a kernel."""


def int4(size, **settings):
    return WeightForm(codes="int", bits=4, inputs=size, **settings)


def int8(outputs=1, **settings):
    return WeightForm(codes="int", bits=8, outputs=outputs, **settings)


def float8(outputs=1, inputs=0, codes="float8_e4m3fn", **settings):
    return WeightForm(codes=codes, outputs=outputs, inputs=inputs, **settings)


def e5m2(outputs=1, inputs=0, **settings):
    return float8(outputs, inputs, "float8_e5m2", **settings)


BLOCKS = [WeightForm(codes=f"gguf:{kind}") for kind in FORMATS] + [WeightForm(codes=codes) for codes in OPENED]
GROUPS = [
    int4(size, zeros=zeros, ordered=ordered)
    for size in (32, 64, 128, 0)
    for zeros in (False, True)
    for ordered in (False, True)
    if size or not ordered
] + [int4(size, activations="int8:token") for size in (64, 0)]
EXACT = [WeightForm(), int8(), int8(0), int8(activations="int8:token")]
FLOAT8 = [
    float8(),
    float8(0, activations="float8:token"),
    float8(16, 128, activations="float8:128"),
    float8(1, 64),
    float8(48, 96),
    float8(1, 32, scale="e8m0", activations="float8:32"),
]
E5M2 = [e5m2(), e5m2(16, 128, activations="float8:128"), e5m2(1, 32, scale="e8m0")]
ODD = [
    int4(16, zeros=True),
    int8(inputs=64, zeros=True),
    float8(16, 48),
    e5m2(16, 48),
    WeightForm(codes="nf4", inputs=32),
]
"""Forms without a kernel."""

MXFP4 = WeightForm(codes="e2m1", inputs=32, scale="e8m0", activations="e2m1:32")
NVFP4 = WeightForm(codes="e2m1", inputs=16, scale="e4m3", activations="e2m1:16")
FLOAT4 = [MXFP4, NVFP4, MXFP4.replace(activations="as_is"), NVFP4.replace(activations="as_is")]

NF4, FP4 = WeightForm(codes="nf4", inputs=64), WeightForm(codes="fp4", inputs=64)
TABLES = [NF4, FP4, NF4.replace(inputs=128)]
UNROUNDED = [*ODD, *EXACT[:3], *FLOAT8, *E5M2, *TABLES]
"""Forms whose products round no activations."""

FORMS = [*EXACT, *ODD, *FLOAT8, *E5M2, *FLOAT4, *TABLES, *BLOCKS, *GROUPS]


def weights(form, rows, inputs=K, seed=0, *, bias=False):
    """Return a random part of the form."""
    rng = torch.Generator().manual_seed(1000 + seed)  # other numbers than activations of seed 0
    if form.codes in VALUES:
        return _table(form, rows, inputs, rng, bias=bias)
    if form.codes == "e2m1":
        return _float4(form, rows, inputs, rng, bias=bias)
    if form.scale == "e8m0":
        part = random_part(form.replace(scale="float32"), rows, inputs, rng, bias=bias)
        exponents = torch.randint(124, 130, part.scales.shape, dtype=torch.uint8, generator=rng)
        part = replace(part, form=form, scales=exponents)
        part.decode = partial(opened, replace(part))
        return part
    if not form.codes.startswith("gguf:"):
        return random_part(form, rows, inputs, rng, bias=bias)
    gguf = pytest.importorskip("gguf")
    if (name := form.codes.removeprefix("gguf:")) in ("MXFP4", "NVFP4", "IQ4_NL", "IQ4_XS", *FEW_BITS):
        return _as_in_a_file(form, name, rows, inputs, rng, bias=bias)
    kind = gguf.GGMLQuantizationType[name]
    if kind.name.endswith("_K"):
        stored = _nested(kind, rows, inputs, rng)
    else:
        stored = torch.from_numpy(gguf.quants.quantize(torch.randn(rows, inputs, generator=rng).numpy(), kind))
    values = torch.from_numpy(gguf.quants.dequantize(stored.numpy(), kind))
    part = Part(form, stored, decode=lambda dtype: values.to(dtype))
    part.bias = torch.randn(rows, generator=rng) if bias else None
    return part


def _float4(form, rows, inputs, rng, *, bias):
    codes = torch.randint(0, 16, (rows, inputs), dtype=torch.uint8, generator=rng)
    if form.scale == "e8m0":
        scales, whole = torch.randint(120, 126, (rows, inputs // 32), dtype=torch.uint8, generator=rng), None
    else:
        scales = (torch.rand(rows, inputs // 16, generator=rng) * 400).to(torch.float8_e4m3fn)
        scales[0, 0], whole = 2.0**-9, torch.tensor(0.0037)
    part = Part(form, codes, scales, tensor_scale=whole)
    part.decode = partial(opened, replace(part))
    part.bias = torch.randn(rows, generator=rng) if bias else None
    return part


def _table(form, rows, inputs, rng, *, bias):
    codes = torch.randint(0, 16, (rows, inputs), dtype=torch.uint8, generator=rng)
    scales = torch.rand(rows, -(-inputs // form.inputs), generator=rng) + 0.1
    values = torch.tensor(VALUES[form.codes])[codes.long()]
    values = values * scales.repeat_interleave(form.inputs, dim=1)[:, :inputs]
    part = Part(form, codes, scales, decode=lambda dtype: values.to(dtype))
    part.bias = torch.randn(rows, generator=rng) if bias else None
    return part


def _as_in_a_file(form, kind, rows, inputs, rng, *, bias):
    with torch.random.fork_rng():
        torch.manual_seed(int(torch.randint(1 << 30, (), generator=rng)))
        stored = stored_blocks(kind, rows, inputs)
    values = decoded(stored, kind, inputs)
    part = Part(form, stored, decode=lambda dtype: values.to(dtype))
    part.bias = torch.randn(rows, generator=rng) if bias else None
    return part


def _halves(rows, blocks, count, rng):
    numbers = (torch.rand(rows, blocks, count, generator=rng) + 0.5).half()
    return numbers.view(torch.uint8)


def _nested(kind, rows, inputs, rng):
    """Random super-blocks with scales that are numbers; gguf's Python package does not make any."""
    layout = FORMATS[kind.name]
    stored = torch.randint(0, 256, (rows, inputs // 256, layout.stored), dtype=torch.uint8, generator=rng)
    if kind.name in BEHIND:
        (at,) = BEHIND[kind.name]
        stored[..., at : at + 2] = _halves(rows, inputs // 256, 1, rng)
    else:
        stored[..., :4] = _halves(rows, inputs // 256, 2, rng)
    return stored.flatten(1)


PRODUCTS = {"cpu_linear": LinearProduct, "cpu_lookup": LookupProduct, "dense": PackedProduct}


def make(name, site, forms, dtype=torch.bfloat16, method="none", **options):
    """Return a product without weights."""
    place = ProductPlace(site, tuple(forms), torch.device("cpu"), dtype, method)
    return PRODUCTS[name](place, options)


def packed(product, parts, order=None):
    """Return the parameters of a product whose parts are packed, in any order."""
    params = {name: torch.full(shape, 77, dtype=dtype) for name, (shape, dtype) in product.sizes().items()}
    for index in order or range(len(parts)):
        product.pack(parts[index], index, params)
    return product.finish(params)


def expected(product, parts, x):
    """Return what the reference product gives for these weights in float32, activations of floats and of 4 bits
    as they are."""
    place = product.place
    forms = tuple(unrounded(form) for form in place.forms)
    reference = ReferenceProduct(ProductPlace(place.site, forms, place.device, torch.float32), {})
    return reference.apply(x.float(), packed(reference, parts))


def unrounded(form):
    """Return a form of floats or of 4 bits with activations that are not rounded, another as it is."""
    finer = form.codes.startswith(("float8", "e2m1")) or form.bits == 4
    return form.replace(activations="as_is") if finer else form


def error(found, due):
    return ((found.float() - due.float()).norm() / due.float().norm()).item()
