"""Which form of an operation a layer is given: decided once, while the model is built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from core.api.errors import PluginError
from core.api.kernels import PRODUCTS, KernelRequest
from core.ops.registry import REGISTRY, Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from core.api.descriptors import KernelSpec
    from core.api.products import Product, ProductPlace


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """A kernel of the plan; `load` imports it when it is first chosen."""

    spec: KernelSpec
    owner: str
    load: Callable[[], Op]


@dataclass(slots=True)
class KernelTable:
    """Chooses among the plan's kernels, in the plan's order; the reference form is what is left.

    Args:
        device, dtype: What the model is built for.
        planned: Kernels, best first.
        commanded: Operations for which the user named the kernel: nothing else may serve.

    Attributes:
        chosen: Operation -> names of the kernels that layers were given.
        owners: Form of an operation -> whose kernel it is, for errors.
    """

    device: str
    dtype: str
    planned: Sequence[PlannedKernel] = ()
    commanded: Iterable[str] = ()
    chosen: dict[str, set[str]] = field(default_factory=dict)
    owners: dict[Op, str] = field(default_factory=dict)

    def pick(self, op: str, **dims: int) -> Op:
        """Return the form of `op` for these sizes.

        Raises:
            PluginError: CORE-P201, the kernel that the user named does not take these sizes.
        """
        request = KernelRequest(op=op, device=self.device, dtype=self.dtype, dims=dims)
        return self._choose([request])

    def product(self, place: ProductPlace, op: str) -> tuple[Product, str]:
        """Return the product that multiplies with the weight of a layer, and whose it is, for errors.

        One product has to take the forms of all parts of the layer.

        Raises:
            PluginError: CORE-P201, the product that the user named does not take them.
        """
        site = place.site
        dims, facts = {"inputs": site.in_features, "outputs": site.rows}, {"kind": site.kind, "method": place.method}
        requests = [
            KernelRequest(op=op, device=self.device, dtype=self.dtype, dims=dims, form=key, facts=facts)
            for key in dict.fromkeys(form.key for form in place.forms)
        ]
        made = self._choose(requests)
        return made(place), self.owner(made)

    def _choose(self, requests: Sequence[KernelRequest]) -> Op:
        """Return the form of an operation that serves all of the requests for it."""
        op = requests[0].op
        for kernel in self.planned:
            if kernel.spec.op != op:
                continue
            reasons = list(dict.fromkeys(reason for one in requests for reason in kernel.spec.check(one).reasons))
            if not reasons:
                self.chosen.setdefault(op, set()).add(kernel.spec.name)
                form = kernel.load()
                self.owners[form] = f"kernel '{kernel.spec.name}' ({kernel.owner})"
                return form
            if op in self.commanded:
                raise PluginError(
                    "CORE-P201",
                    f"kernel '{kernel.spec.name}' ({kernel.owner}) cannot serve {op} here: {'; '.join(reasons)}.",
                    hint=f"Use --kernel {op}=reference, or leave --kernel out.",
                )
        reference = REGISTRY[op].reference
        return partial(reference, options={}) if op in PRODUCTS else reference

    def owner(self, *forms: Op) -> str:
        """Return whose these forms of operations are, for errors."""
        return " and ".join(dict.fromkeys(self.owners.get(form, "core's own form") for form in forms))

    def describe(self) -> str:
        """Return one line for the start-up table; empty when every form is the reference."""
        return ", ".join(f"{op}={'/'.join(sorted(names))}" for op, names in sorted(self.chosen.items()))
