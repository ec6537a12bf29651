"""Parts of weights in every form that the products take."""

from functools import partial

import pytest
import torch

from core.api import Part, ProductPlace, WeightForm
from core.api.quantization import LayerSite
from core.ops.products import ReferenceProduct, opened


def ints(bits, size, **settings):
    return WeightForm(codes="int", bits=bits, inputs=size, **settings)


def float8(outputs=1, inputs=0, codes="float8_e4m3fn", **settings):
    return WeightForm(codes=codes, outputs=outputs, inputs=inputs, **settings)


def e2m1(size, scale, activations="as_is"):
    return WeightForm(codes="e2m1", inputs=size, scale=scale, activations=activations)


INT8 = [
    WeightForm(codes="int", bits=8, outputs=outputs, activations=activations)
    for outputs in (0, 1)
    for activations in ("as_is", "int8:token")
]
FLOAT8 = [
    float8(0, activations="float8:tensor"),
    float8(1, activations="float8:token"),
    float8(1),
    float8(16, 128, activations="float8:128"),
    float8(128, 128, activations="float8:128"),
    float8(128, 128, activations="float8:128", scale="e8m0"),
    float8(16, 48),
    float8(1, 32, scale="e8m0", activations="float8:32"),
    float8(0, codes="float8_e5m2"),
    float8(1, 64, codes="float8_e5m2", activations="float8:token"),
]
GROUPS = [
    *(ints(4, size, zeros=zeros) for size in (32, 128, 0) for zeros in (False, True)),
    *(ints(4, 32, zeros=zeros, ordered=True) for zeros in (False, True)),
    *(ints(bits, 64, zeros=bits % 2 == 0) for bits in (2, 3, 5, 6, 7, 8)),
    *(ints(bits, 64, zeros=bits % 2 == 1) for bits in (2, 3, 8)),
    ints(8, 128, zeros=True, ordered=True),
    ints(4, 64, activations="int8:token"),
    ints(4, 64, activations="float8:token"),
    ints(4, 24, zeros=True),
]
FLOAT4 = [
    e2m1(32, "e8m0"),
    e2m1(32, "e8m0", "e2m1:32"),
    e2m1(32, "e8m0", "float8:32"),
    e2m1(16, "e4m3"),
    e2m1(16, "e4m3", "e2m1:16"),
    e2m1(32, "float32"),
]
TABLES = [WeightForm(codes="nf4", inputs=64), WeightForm(codes="fp4", inputs=64), WeightForm(codes="nf4", inputs=24)]
KINDS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"]
BLOCKS = [WeightForm(codes=f"gguf:{kind}") for kind in KINDS]
FORMS = [*INT8, *FLOAT8, *GROUPS, *FLOAT4, *TABLES, *BLOCKS]
HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}
"""Bytes of a block's numbers in float16."""


def weights(form, outputs, inputs, seed=0, *, bias=False):
    """Return a random part of the form."""
    rng = torch.Generator().manual_seed(1000 + seed)
    part = _blocks(form, outputs, inputs, rng) if form.codes.startswith("gguf:") else _coded(form, outputs, inputs, rng)
    part.bias = torch.randn(outputs, generator=rng) if bias else None
    if form.activations in ("float8:tensor", "e2m1:16") and seed % 2:
        part.input_scale = torch.tensor(0.01 * (1 + seed))
    return part


def _coded(form, outputs, inputs, rng):
    shared = (-(-outputs // (form.outputs or outputs)), -(-inputs // (form.inputs or inputs)))
    scales, zeros, whole, group_of = torch.rand(shared, generator=rng) + 0.5, None, None, None
    if form.scale == "e8m0":
        scales = torch.randint(124, 130, shared, dtype=torch.uint8, generator=rng)
    elif form.scale == "e4m3":
        scales, whole = (scales * 200).to(torch.float8_e4m3fn), torch.tensor(0.0037)
    if form.codes.startswith("float8"):
        codes = torch.randn(outputs, inputs, generator=rng).to(getattr(torch, form.codes))
    elif form.codes == "int":
        levels = 1 << form.bits
        codes = torch.randint(0, levels, (outputs, inputs), generator=rng)
        codes = codes.to(torch.uint8) if form.zeros else (codes - levels // 2).to(torch.int8)
        zeros = torch.randint(levels, 3 * levels, shared, generator=rng) / 4 if form.zeros else None
    else:
        codes = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8, generator=rng)
    if form.ordered:
        group_of = torch.randint(0, shared[1], (inputs,), generator=rng)  # groups of unequal sizes, too
    part = Part(form, codes, scales, zeros, group_of, whole)
    part.decode = partial(opened, Part(form, codes, scales, zeros, group_of, whole))
    return part


def _blocks(form, outputs, inputs, rng):
    gguf = pytest.importorskip("gguf")
    name = form.codes.removeprefix("gguf:")
    kind = gguf.GGMLQuantizationType[name]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    stored = torch.randint(0, 256, (outputs, inputs // values, size), dtype=torch.uint8, generator=rng)
    for at in HALVES.get(name, ()):
        numbers = (torch.rand(outputs, inputs // values, 1, generator=rng) + 0.5).mul(0.01).half()
        stored[..., at : at + 2] = numbers.view(torch.uint8)
    if name == "MXFP4":
        stored[..., 0] = torch.randint(120, 132, stored.shape[:2], dtype=torch.uint8, generator=rng)
    stored = stored.flatten(1)
    found = torch.from_numpy(gguf.quants.dequantize(stored.numpy(), kind))
    return Part(form, stored, decode=lambda dtype: found.to(dtype))


def place(forms, rows, inputs, dtype=torch.float32, kind="linear", bias=False):
    """Return the place of a layer."""
    parts = [(f"part{index}", count) for index, count in enumerate(rows)]
    site = LayerSite(kind, "layer", inputs, parts, bias)
    return ProductPlace(site, tuple(forms), torch.device("cpu"), dtype)


def filled(product, parts, order=None):
    """Return the parameters of a product whose parts are packed into memory that held something else."""
    params = {name: torch.full(shape, 77, dtype=dtype) for name, (shape, dtype) in product.sizes().items()}
    for index in order or range(len(parts)):
        product.pack(parts[index], index, params)
    return product.finish(params)


def due(where, parts, x):
    """Return what the reference product gives in float64 for activations that it rounds in float32."""
    reference = ReferenceProduct(ProductPlace(where.site, where.forms, where.device, torch.float32), {})
    params = {name: one if name == "input_scales" else one.double() for name, one in filled(reference, parts).items()}
    return Exact(reference.place, {}).apply(x.float(), params)


class Exact(ReferenceProduct):
    """The reference product with sums in float64."""

    def apply(self, x, params):
        from core.ops.rounding import rounded

        forms, fixed = self.place.forms, params.get("input_scales")
        weights_ = torch.split(params["weight"], [rows for _, rows in self.place.site.parts])
        scales = [None] * len(forms) if fixed is None else list(fixed)
        inputs = [rounded(x, form.activations, one).double() for form, one in zip(forms, scales)]
        y = torch.cat([one @ weight.T for one, weight in zip(inputs, weights_)], -1)
        return y + params["bias"] if "bias" in params else y
