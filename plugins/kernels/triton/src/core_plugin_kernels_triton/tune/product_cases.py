"""Timings of products with stored weights: a model's linear layers, in forms that checkpoints often have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from core.api import KernelRequest, LayerSite, ProbeResult, Product, ProductPlace, WeightForm
from core_plugin_kernels_triton.products.cards import card
from core_plugin_kernels_triton.products.layers import StoredProduct
from core_plugin_kernels_triton.products.refine import product as refine
from core_plugin_kernels_triton.products.tiles import tiles
from core_plugin_kernels_triton.tune.cases import Call, Sizes

FORMS = (
    WeightForm(codes="int", bits=4, inputs=128, zeros=True),
    WeightForm(codes="float8_e4m3fn", outputs=128, inputs=128, activations="float8:128"),
    WeightForm(codes="gguf:Q4_K"),
    WeightForm(codes="e2m1", inputs=32, scale="e8m0"),
)
"""AWQ, float8 in blocks, Q4_K and MXFP4."""

SCALED = (
    WeightForm(codes="e2m1", inputs=32, scale="e8m0", activations="e2m1:32"),
    WeightForm(codes="float8_e4m3fn", inputs=32, scale="e8m0", activations="float8:32"),
)
"""Forms in runs with scales, which some cards can multiply."""

_ONE_IN_E8M0 = 127


def cases(sizes: Sizes, device: torch.device) -> Mapping[str, Sequence[Call]]:
    """Return kernel of the table -> calls whose time counts; none where sizes or the card ask for none."""
    most = tiles(device)["few"]["rows"]
    few = [rows for rows in sizes.rows if rows <= most]
    many = [rows for rows in sizes.rows if rows > most]
    scaled = SCALED if card(device).scaled else ()
    of_few = [call for form in FORMS for call in _layers(form, sizes, few, device)]
    return {
        "few": of_few,
        "many": [call for form in FORMS for call in _layers(form, sizes, many, device)],
        "scaled": [call for form in scaled for call in _layers(form, sizes, many, device)],
        "merge": of_few,
        "lookup": [call for form in FORMS for call in _lookups(form, sizes, device)],
    }


def takes(form: WeightForm, inputs: int) -> bool:
    """Whether rows of so many inputs can have a form."""
    request = KernelRequest(op="linear", device="cuda", dtype="bfloat16", dims={"inputs": inputs}, form=form.key)
    return refine(request, ProbeResult(available=True)).ok


def invented(product: Product, device: torch.device) -> dict[str, Tensor]:
    """Return parameters for a product: random codes, scales of 1."""
    found: dict[str, Tensor] = {}
    for name, (shape, dtype) in product.sizes().items():
        if name.startswith("codes"):
            found[name] = torch.randint(0, 256, shape, dtype=dtype, device=device)
        elif dtype == torch.uint8:
            found[name] = torch.full(shape, _ONE_IN_E8M0, dtype=dtype, device=device)
        else:
            found[name] = torch.ones(shape, dtype=dtype, device=device)
    return product.finish(found)


def _layers(form: WeightForm, sizes: Sizes, rows: Sequence[int], device: torch.device) -> Iterator[Call]:
    """Yield a step's projection of q, k and v, the two of gate and up, and that of down."""
    heads = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim
    shapes = ((heads, sizes.hidden), (2 * sizes.intermediate, sizes.hidden), (sizes.hidden, sizes.intermediate))
    for outputs, inputs in shapes:
        if rows and takes(form, inputs):
            product = StoredProduct(_place("linear", form, outputs, inputs, sizes, device), {})
            params = invented(product, device)
            for count in rows:
                x = torch.randn(count, inputs, dtype=product.place.dtype, device=device)
                yield partial(product.apply, x, params)


def _lookups(form: WeightForm, sizes: Sizes, device: torch.device) -> Iterator[Call]:
    if takes(form, sizes.hidden):
        product = StoredProduct(_place("embedding", form, sizes.vocabulary, sizes.hidden, sizes, device), {})
        params = invented(product, device)
        for count in sizes.rows:
            yield partial(product.look_up, torch.randint(sizes.vocabulary, (count,), device=device), params)


def _place(kind: str, form: WeightForm, outputs: int, inputs: int, sizes: Sizes, device: torch.device) -> ProductPlace:
    site = LayerSite(kind, "tune", inputs, [("", outputs)])
    return ProductPlace(site, (form,), device, getattr(torch, sizes.dtype))
