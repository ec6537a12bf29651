"""Which form of an operation a layer is given: decided once, while the model is built."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from core.api.errors import PluginError
from core.api.kernels import PRODUCTS, ROW_PRODUCTS, KernelRequest
from core.api.kinds import Contract
from core.ops.registry import REGISTRY, Op
from core.plugins.contracts import OWN_PRODUCT, PRODUCT
from core.plugins.handed import Handed

if TYPE_CHECKING:
    from core.api.descriptors import KernelSpec
    from core.api.products import Product, ProductPlace
    from core.api.verdict import Verdict

_CORE = "core's own form"
_REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """A kernel of the plan.

    Attributes:
        load: Imports it; called when it is first chosen.
        refine: Asks the function that the descriptor names by a path, its `refine`.
    """

    spec: KernelSpec
    owner: str
    load: Callable[[], Op]
    refine: Callable[[str, KernelRequest], Verdict] | None = None

    def against(self, request: KernelRequest) -> Sequence[str]:
        """Return every reason against it."""
        reasons = self.spec.check(request).reasons
        if reasons or self.spec.refine is None or self.refine is None:
            return reasons
        return self.refine(self.spec.refine, request).reasons


@dataclass(frozen=True, slots=True)
class PlannedReference:
    """The reference form of an operation that plugins bring.

    Attributes:
        load: Imports it; called when it is first needed.
        multiplies: Whether it is a product.
    """

    owner: str
    load: Callable[[], Op]
    multiplies: bool = False


@dataclass(slots=True)
class KernelTable:
    """Chooses among the plan's kernels, in the plan's order; the reference form is what is left.

    Args:
        device, dtype: What the model is built for.
        planned: Kernels, best first.
        commanded: Operations for which the user named kernels: nothing else may serve.
        references: Reference forms of operations that are not core's.
        named: Operations for which the user named kernels or the reference form.

    Attributes:
        chosen: Operation -> names of the kernels that layers were given.
        multiplied: Operation that multiplies with weights -> product -> forms of the weights that it was given.
        opened: Operation of core, and form that is not plain, where the reference product serves -> bytes that such
            weights take when they are opened.
        owners: Form of an operation -> whose kernel it is, for errors.
    """

    device: str
    dtype: str
    planned: Sequence[PlannedKernel] = ()
    commanded: Collection[str] = ()
    references: Mapping[str, PlannedReference] = field(default_factory=dict)
    named: Collection[str] = ()
    chosen: dict[str, set[str]] = field(default_factory=dict)
    multiplied: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    opened: Counter[tuple[str, str]] = field(default_factory=Counter)
    owners: dict[Op, str] = field(default_factory=dict)
    _handed: dict[str, Handed] = field(default_factory=dict)

    def pick(self, op: str, **dims: int) -> Op:
        """Return the form of `op` for these sizes.

        Raises:
            PluginError: CORE-P237, nobody brings the operation; CORE-P238, it multiplies with weights; CORE-P201, no
                kernel that the user named takes these sizes.
        """
        self._require(op, multiplies=False)
        name, form = self._choose([KernelRequest(op=op, device=self.device, dtype=self.dtype, dims=dims)])
        if name != _REFERENCE:
            self.chosen.setdefault(op, set()).add(name)
        return form

    def product(self, place: ProductPlace, op: str) -> tuple[Product, str]:
        """Return the product that multiplies with the weight of a layer, and whose it is, for errors.

        One product has to take the forms of all parts of the layer.

        Raises:
            PluginError: CORE-P237, nobody brings the operation; CORE-P238, it multiplies with no weights; CORE-P201, no
                product that the user named takes the forms; CORE-P108, CORE-P160, the product cannot be made.
        """
        self._require(op, multiplies=True)
        site = place.site
        dims = {**place.dims, "inputs": site.in_features, "outputs": site.rows}
        request = KernelRequest(
            op=op, device=self.device, dtype=self.dtype, dims=dims, facts={"kind": site.kind, "method": place.method}
        )
        name, make = self._choose(
            [request.replace(form=key) for key in dict.fromkeys(form.key for form in place.forms)]
        )
        self._note(place, op, name)
        owner = self.owner(make)
        handed = self._handed.setdefault(owner, Handed(owner))
        product: Product = handed.ask("its constructor", self.contract(op), make, place)
        return product, owner

    def contract(self, op: str) -> Contract:
        """Return what products of an operation have to be."""
        return PRODUCT if op in ROW_PRODUCTS else OWN_PRODUCT

    def owner(self, *forms: Op) -> str:
        """Return whose these forms of operations are, for errors."""
        return " and ".join(dict.fromkeys(self.owners.get(form, _CORE) for form in forms))

    def describe(self) -> str:
        """Return one line for the start-up table; empty when no layer asked for more than reference forms of core."""
        products = [f"{op}: {_counted(names)}" for op, names in sorted(self.multiplied.items())]
        others = [f"{op}={'/'.join(sorted(names))}" for op, names in sorted(self.chosen.items())]
        return "; ".join([*products, *([", ".join(others)] if others else [])])

    def _require(self, op: str, *, multiplies: bool) -> None:
        """Refuse an operation that nobody brings, or that is asked for in the wrong way."""
        known = {name: name in PRODUCTS for name in REGISTRY}
        known |= {name: one.multiplies for name, one in self.references.items()}
        if op not in known:
            raise PluginError(
                "CORE-P237",
                f"the model asks for operation '{op}', which neither core nor an installed kernel brings; known are "
                f"{', '.join(sorted(known))}.",
                hint="Install the distribution that brings it; `core plugins why` says why kernels were refused.",
            )
        if known[op] != multiplies:
            how = "operation()" if multiplies else "linear(), embedding() or weights()"
            does = "multiplies with no weights" if multiplies else "multiplies with weights"
            text = f"the model asks for operation '{op}' in the wrong way: it {does}."
            raise PluginError("CORE-P238", text, hint=f"Report it to the plugin's author: ask the builder for {how}.")

    def _choose(self, requests: Sequence[KernelRequest]) -> tuple[str, Op]:
        """Return the name and the form of what serves all of the requests, which are for one operation."""
        op, refusals = requests[0].op, []
        for kernel in self.planned:
            if kernel.spec.op != op:
                continue
            reasons = list(dict.fromkeys(reason for one in requests for reason in kernel.against(one)))
            if not reasons:
                form = kernel.load()
                self.owners[form] = f"kernel '{kernel.spec.name}' ({kernel.owner})"
                return kernel.spec.name, form
            who = f"kernel '{kernel.spec.name}' ({kernel.owner})"
            refusals.append(f"{who} cannot serve {op} here: {'; '.join(reasons)}")
        if op in self.commanded and refusals:
            hint = f"Use --kernel {op}=NAME,reference to have the reference form elsewhere, or leave --kernel out."
            raise PluginError("CORE-P201", f"{' · '.join(refusals)}.", hint=hint)
        return _REFERENCE, self._reference(op)

    def _reference(self, op: str) -> Op:
        planned = self.references.get(op)
        if planned is None:
            reference = REGISTRY[op].reference
            return partial(reference, options={}) if op in PRODUCTS else reference
        form = planned.load()
        self.owners[form] = f"reference form of {op} ({planned.owner})"
        return form

    def _note(self, place: ProductPlace, op: str, name: str) -> None:
        """Remember which product multiplies with which forms."""
        given = self.multiplied.setdefault(op, defaultdict(Counter))[name]
        for form, (_, rows) in zip(place.forms, place.site.parts, strict=True):
            given[form.shown] += 1
            if name == _REFERENCE and form.codes != "plain" and op in PRODUCTS:
                self.opened[op, form.shown] += rows * place.site.in_features * place.dtype.itemsize


def _counted(names: Mapping[str, Counter[str]]) -> str:
    return ", ".join(
        f"{name} ({', '.join(f'{form} x{count}' for form, count in sorted(forms.items()))})"
        for name, forms in sorted(names.items(), key=lambda item: (item[0] == _REFERENCE, item[0]))
    )
