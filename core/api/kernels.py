"""Kernels: faster forms of functional operations. Provisional.

An operation is specified by its form in plain torch, its *reference form*: those of core's operations are in
`core.ops`, an operation of a plugin is brought by the kernels whose `KernelSpec.reference` names its form. A kernel is
a callable with the same signature and, within its stated precision, the same values. Kernels are chosen once, while a
model is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from core.api.record import EMPTY, Record

if TYPE_CHECKING:
    from core.api.verdict import Verdict

OPS = frozenset(
    {
        "rms_norm",
        "add_rms_norm",
        "layer_norm",
        "add_layer_norm",
        "gelu",
        "gelu_tanh",
        "silu_and_mul",
        "gelu_and_mul",
        "gelu_tanh_and_mul",
        "rotary",
        "rotary_interleaved",
        "route",
        "add_identities",
        "causal_conv",
        "linear_attention",
        "selective_scan",
        "gated_recurrence",
        "argmax",
        "draw",
        "mask_tokens",
        "add_bias",
        "penalize",
        "linear",
        "lookup",
        "experts_in",
        "experts_out",
    }
)
"""Operations of core that layers ask kernels for; `core.ops.registry` has their reference forms. Those of `PRODUCTS`
multiply with weights: their kernels are `Product`s. Plugins may bring further operations (`KernelSpec.reference`)."""

ROW_PRODUCTS = frozenset({"linear", "lookup"})
"""Products whose `apply` takes rows of activations, and nothing else beside the parameters."""

PRODUCTS = ROW_PRODUCTS | {"experts_in", "experts_out"}
"""Those of `OPS` that multiply with weights: their kernels are chosen by the form of the weights, too. An operation of
a plugin is one if its kernels name `forms`."""


class DimRule(Record):
    """Which sizes of one dimension a kernel takes.

    Attributes:
        least, most: Limits, both included; `most` None: no limit.
        multiple_of: Sizes must be a multiple of this.
    """

    least: int = 1
    most: int | None = None
    multiple_of: int = 1

    def against(self, name: str, size: int) -> str | None:
        """Return why `size` is not taken, or None."""
        if size < self.least or (self.most is not None and size > self.most):
            return f"{name} {size} is outside {self.least} to {self.most if self.most is not None else 'any'}"
        return None if size % self.multiple_of == 0 else f"{name} {size} is not a multiple of {self.multiple_of}"


class KernelRequest(Record):
    """A layer's request for a kernel.

    Attributes:
        op: Name of the operation.
        device: torch device type.
        dtype: Compute dtype.
        dims: Sizes known while the layer is built (`size` of a norm, `head_dim` of a rotary embedding; `inputs` and
            `outputs` of a product). Empty before that, while plugins are chosen.
        form: Of a product, the form of the weights, as `WeightForm.key`; empty for other operations.
        facts: Of a product: `kind`, the kind of the layer (`linear`, `embedding`, `lm_head`, ...), and `method`, how
            the checkpoint says that it stores weights.
    """

    op: str
    device: str
    dtype: str
    dims: Mapping[str, int] = EMPTY
    form: str = ""
    facts: Mapping[str, str] = EMPTY


def kernel_faults(op: str, forms: tuple[str, ...], reference: str | None) -> Iterator[str]:
    """Yield what is wrong with the data of a kernel, whatever it is asked for."""
    if not op or set(op) & set("=, "):
        yield f"op: {op!r} is no name of an operation"
    if op in OPS and reference is not None:
        yield f"reference: {op} is an operation of core, which has its reference form"
    if op not in OPS and reference is None:
        yield f"reference: {op} is no operation of core ({', '.join(sorted(OPS))}): name its form in plain torch"
    if op in PRODUCTS and not forms:
        yield f"forms: {op} multiplies with weights: name the forms that the product takes"
    if op in OPS - PRODUCTS and forms:
        yield f"forms: {op} multiplies with no weights"


def check_kernel(
    request: KernelRequest,
    devices: frozenset[str],
    dtypes: frozenset[str],
    dims: Mapping[str, DimRule],
    forms: tuple[str, ...] = (),
) -> Verdict:
    """Hold a kernel's data against a request and return every reason against it."""
    from core.api.verdict import Verdict  # importing a descriptor stays cheap

    sizes = [
        rule.against(name, request.dims[name]) if name in request.dims else f"{name} is not known here"
        for name, rule in dims.items()
    ]
    return Verdict.of(
        None if {request.device, "*"} & devices else f"device {request.device} not in {{{', '.join(sorted(devices))}}}",
        None if request.dtype in dtypes else f"dtype {request.dtype} not in {{{', '.join(sorted(dtypes))}}}",
        f"weights of the form {request.form}, not {' or '.join(forms)}" if _misses(request.form, forms) else None,
        *sizes,
    )


def _misses(form: str, patterns: tuple[str, ...]) -> bool:
    return bool(form) and not any(fnmatchcase(form, pattern) for pattern in patterns)
