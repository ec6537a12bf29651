"""One product beside the reference product, with random weights of the forms that its descriptor names."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from core.api.descriptors import KernelSpec
from core.api.forms import PLAIN, Part, WeightForm
from core.api.kernels import KernelRequest
from core.api.products import Product, ProductPlace
from core.api.quantization import LayerSite
from core.ops.products import opened
from core.ops.registry import REGISTRY
from core_testing.conformance.outcome import NotApplicable, Unavailable, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import device_of, dtype_of, probe_of
from core_testing.conformance.tools.options import some_options
from core_testing.conformance.tools.parts import random_part

INPUTS = 256
PARTS = (("q_proj", 48), ("k_proj", 16), ("v_proj", 24))
VOCABULARY = (("", 50),)
"""Outputs that are no multiple of what kernels take together."""

EXPERTS = 5
EXPERT_PARTS: Mapping[str, tuple[tuple[str, int], ...]] = types.MappingProxyType(
    {"experts_in": (("gate_proj", 48), ("up_proj", 48)), "experts_out": (("down_proj", 80),)}
)

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
        self.op, device = spec.op, device_of(subject, spec.needs)
        site = site_of(self.op, len(forms), bias=bias)
        # Experts are all alike.
        own = tuple(forms[: len(site.parts)]) if not site.experts else (forms[0],) * len(site.parts)
        self.place = ProductPlace(site, own, device, dtype_of(dtype))
        self._subject = subject
        self.product: Product = subject.impl()(self.place, options=some_options(subject))
        self.where = f"{self.op} of {' and '.join(dict.fromkeys(one.key for one in self.place.forms))} in {dtype}"
        self.tolerance = TOLERANCE[dtype]

    def again(self) -> ProductBench:
        """Return a bench with another product of the same place."""
        other = copy(self)
        other.product = self._subject.impl()(self.place, options=some_options(self._subject))
        return other

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

    def inputs(self, tokens: int, seed: int = 0) -> tuple[Tensor, ...]:
        """Return what `apply` takes for so many tokens: random activations first, then experts, where it has some."""
        rng, site = torch.Generator().manual_seed(seed), self.place.site
        if not site.experts:
            return (self._activations(tokens, rng),)
        weights, ids = (one.to(self.place.device) for one in _routed(site.experts, tokens, rng))
        if self.op == "experts_in":
            return self._activations(tokens, rng), ids
        return self._activations(ids.numel(), rng), weights, ids

    def _activations(self, rows: int, rng: torch.Generator) -> Tensor:
        x = torch.randn(rows, self.place.site.in_features, generator=rng)
        return x.to(self.place.device, self.place.dtype)

    def due(self, inputs: Sequence[Tensor], parts: Sequence[Part]) -> Tensor:
        """Return what the reference product gives in float32."""
        reference: Product = REGISTRY[self.op].reference(replace(self.place, dtype=torch.float32), {})
        x, *others = inputs
        apply: Callable[..., Tensor] = reference.apply
        return apply(x.float(), *others, reference.finish(self._packed(reference, parts)))

    def apply(self, inputs: Sequence[Tensor], params: Mapping[str, Tensor]) -> Tensor:
        """Return the product's result."""
        apply: Callable[..., Tensor] = self.product.apply
        return apply(*inputs, params)

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


def site_of(op: str, parts: int, *, bias: bool) -> LayerSite:
    """Return the place of a layer for an operation."""
    if op == "lookup":
        return LayerSite("embedding", "layer", INPUTS, VOCABULARY)
    if op in EXPERT_PARTS:
        names = [(f"{expert}.{name}", rows) for expert in range(EXPERTS) for name, rows in EXPERT_PARTS[op]]
        return LayerSite("experts", "layer", INPUTS, names, bias, experts=EXPERTS)
    return LayerSite("linear", "layer", INPUTS, PARTS[:parts], bias)


def _routed(experts: int, tokens: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return weights and ids of two different experts for each token; a token in four has only one: an id is
    none, or behind the last."""
    ids = torch.rand(tokens, experts, generator=rng).argsort(-1)[:, :2].int()
    ids[::4, 1] = -1
    ids[::8, 1] = experts + 1
    return torch.rand(tokens, 2, generator=rng), ids


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
    site = site_of(spec.op, len(PARTS), bias=False)
    dims = {"inputs": INPUTS, "outputs": site.rows} | ({"experts": site.experts} if site.experts else {})
    # What stands in for a device, an interpreter for instance, is not among those that the descriptor names.
    device = subject.device if {subject.device, "*"} & spec.devices else min(spec.devices)
    request = KernelRequest(
        op=spec.op,
        device=device,
        dtype=dtype,
        dims=dims,
        form=form.key,
        facts={"kind": site.kind, "method": "none"},
    )
    if not spec.check(request).ok:
        return False
    return spec.refine is None or bool(subject.load(spec.refine)(request, probe_of(subject, spec.needs)).ok)
