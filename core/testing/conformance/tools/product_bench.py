"""One product beside the reference product, with random weights of the forms that its descriptor names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from core.api.descriptors import KernelSpec
from core.api.forms import PLAIN, Part, WeightForm
from core.api.kernels import KernelRequest
from core.api.products import Product, ProductPlace
from core.api.quantization import LayerSite
from core.ops.products import ReferenceProduct, opened
from core.testing.conformance.outcome import NotApplicable, Unavailable, require
from core.testing.conformance.subject import Subject
from core.testing.conformance.tools.devices import device_of, dtype_of, probe_of
from core.testing.conformance.tools.options import some_options
from core.testing.conformance.tools.parts import random_part

INPUTS = 256
PARTS = (("q_proj", 48), ("k_proj", 16), ("v_proj", 24))
VOCABULARY = (("", 50),)
"""Outputs that are no multiple of what kernels take together."""

TOLERANCE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-2}
"""Relative error of a result's 2-norm; of short types also where activations are rounded to 8 bits in blocks."""

_GROUPED = [
    WeightForm(codes="int", bits=bits, inputs=size, zeros=zeros, ordered=ordered)
    for bits in (4, 8)
    for size in (32, 128, 0)
    for zeros in (False, True)
    for ordered in (False, True)
    if size or not ordered
]
_FLOATS = [
    WeightForm(codes="float8_e4m3fn", outputs=outputs, inputs=inputs) for outputs, inputs in ((0, 0), (1, 0), (16, 128))
]
FORMS = (
    PLAIN,
    *_GROUPED,
    *_FLOATS,
    WeightForm(codes="int", bits=8, outputs=0),
    WeightForm(codes="int", bits=8, activations="int8:token"),
)
"""Forms whose codes core opens: those of file formats are checked with their plugins' checkpoints."""


class ProductBench:
    """A product for layers of one form, or of one for each part.

    Raises:
        Unavailable: The device lacks a feature that it needs.
    """

    def __init__(self, subject: Subject, forms: Sequence[WeightForm], dtype: str, *, bias: bool = True) -> None:
        spec = subject.spec(KernelSpec)
        device, looks_up = device_of(subject, spec.needs), spec.op == "lookup"
        parts = VOCABULARY if looks_up else PARTS[: len(forms)]
        site = LayerSite("embedding" if looks_up else "linear", "layer", INPUTS, parts, bias and not looks_up)
        self.place = ProductPlace(site, tuple(forms[: len(parts)]), device, dtype_of(dtype))
        self.product: Product = subject.impl()(self.place, options=some_options(subject))
        self.where = f"{spec.op} of {' and '.join(one.key for one in self.place.forms)} in {dtype}"
        self.tolerance = TOLERANCE[dtype]

    def parts(self, seed: int = 0) -> list[Part]:
        """Return random weights."""
        rng = torch.Generator().manual_seed(1000 + seed)
        forms, site = self.place.forms, self.place.site
        made = [
            random_part(form, rows, site.in_features, rng, bias=site.bias) for form, (_, rows) in zip(forms, site.parts)
        ]
        return [self._placed(one) for one in made]

    def pack(self, parts: Sequence[Part], order: Sequence[int] | None = None) -> dict[str, Tensor]:
        """Return parameters as they are before `finish`."""
        return self._packed(self.product, parts, order)

    def filled(self, parts: Sequence[Part]) -> dict[str, Tensor]:
        """Return the final parameters."""
        return self.product.finish(self.pack(parts))

    def inputs(self, tokens: int, seed: int = 0) -> Tensor:
        """Return random activations `(tokens, inputs)`."""
        x = torch.randn(tokens, self.place.site.in_features, generator=torch.Generator().manual_seed(seed))
        return x.to(self.place.device, self.place.dtype)

    def due(self, x: Tensor, parts: Sequence[Part]) -> Tensor:
        """Return what the reference product gives in float32."""
        reference = ReferenceProduct(replace(self.place, dtype=torch.float32), {})
        return reference.apply(x.float(), reference.finish(self._packed(reference, parts)))

    def require_close(self, found: Tensor, due: Tensor, note: str) -> None:
        """Require a result to be within the tolerance of the dtype."""
        shape = tuple(due.shape)
        require(tuple(found.shape) == shape, f"{self.where}, {note}: shape {tuple(found.shape)}, due is {shape}")
        off = float((found.float() - due).norm() / due.norm()) if due.numel() else 0.0
        require(off <= self.tolerance, f"{self.where}, {note}: off by {off:.2g}, {self.tolerance:g} is allowed")

    def _packed(self, product: Product, parts: Sequence[Part], order: Sequence[int] | None = None) -> dict[str, Tensor]:
        device = self.place.device
        # What is left from before must not shine through: allocated memory holds anything.
        params = {
            name: torch.full(shape, 77, dtype=dtype, device=device) for name, (shape, dtype) in product.sizes().items()
        }
        for index in order or range(len(parts)):
            product.pack(parts[index], index, params)
        return params

    def _placed(self, part: Part) -> Part:
        names = ("codes", "scales", "zeros", "group_of", "bias")
        tensors = {name: getattr(part, name) for name in names}
        moved = {name: one.to(self.place.device) for name, one in tensors.items() if one is not None}
        placed = replace(part, **moved, decode=None)
        placed.decode = partial(opened, replace(placed))
        return placed


def forms_of(subject: Subject, dtype: str) -> Iterator[WeightForm]:
    """Yield every form of the kit that the product takes in this dtype.

    Raises:
        NotApplicable: The kernel is no product.
        Unavailable: It takes none that the kit can make.
    """
    spec = subject.spec(KernelSpec)
    if not spec.forms:
        raise NotApplicable(f"{spec.op} multiplies with no weights")
    found = [form for form in FORMS if _takes(subject, form, dtype)]
    if not found:
        raise Unavailable(f"the kit makes no weights of {', '.join(spec.forms)} whose sizes it takes")
    yield from found


def _takes(subject: Subject, form: WeightForm, dtype: str) -> bool:
    spec = subject.spec(KernelSpec)
    outputs = sum(rows for _, rows in (VOCABULARY if spec.op == "lookup" else PARTS))
    request = KernelRequest(
        op=spec.op,
        device=subject.device,
        dtype=dtype,
        dims={"inputs": INPUTS, "outputs": outputs},
        form=form.key,
        facts={"kind": "embedding" if spec.op == "lookup" else "linear", "method": "none"},
    )
    if not spec.check(request).ok:
        return False
    return spec.refine is None or bool(subject.load(spec.refine)(request, probe_of(subject, spec.needs)).ok)
