"""The products: parts of a weight, packed one after another into a row of bytes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from core.api import Product
from core.api.quantization import ROUTER
from core_plugin_cpu.native import gemm
from core_plugin_cpu.native.asked import BY_ROW, COARSE, FINE
from core_plugin_cpu.native.packed import Format, PackedWeight
from core_plugin_cpu.options import LookupOptions, ProductOptions
from core_plugin_cpu.products.choice import BLOCK, as_stored, opened
from core_plugin_cpu.products.packings import Blocks, Dense, layout_of
from core_plugin_cpu.products.runs import Layout, Run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import Part, ProductPlace, WeightForm
    from core_plugin_cpu.products.packings import Packing

_LOG = logging.getLogger(__name__)


class PackedProduct(Product):
    """Parameters: `weight (bytes,)` uint8; `bias (outputs,)` float32; `order (parts, inputs)` int32, where inputs are
    rearranged, or `(1, inputs)` if those of all parts are in the same way.
    """

    def __init__(self, place: ProductPlace, options: Mapping[str, Any]) -> None:
        super().__init__(place, options)
        site = place.site
        self._packings = [self._packing(form) for form in place.forms]
        self._asked = self._flags()
        # Steps of bfloat16 are an eighth where logits are about 20: likely tokens would often come out as equals.
        self._result = torch.float32 if site.kind in ("embedding", "lm_head", ROUTER) else place.dtype
        self._layout = Layout(self._packings, [rows for _, rows in site.parts], site.in_features)
        # Inputs are ordered by what the layer is fed: commonly all parts have one order, and are one run.
        self._joined, self._apart = (list(self._layout.runs(joined=joined)) for joined in (True, False))

    @property
    def layout(self) -> str:
        """The formats of all parts, for this library and instruction set."""
        return layout_of(self._packings)

    def sizes(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Return the packed bytes of all parts, and what else they need."""
        site, ordered = self.place.site, sum(one.ordered for one in self._packings)
        sizes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {"weight": ((self._layout.size,), torch.uint8)}
        if site.bias:
            sizes["bias"] = ((site.rows,), torch.float32)
        if ordered:
            sizes["order"] = ((ordered, site.in_features), torch.int32)
        return sizes

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Pack the part into its bytes."""
        packing, (start, end) = self._packings[index], self._layout.starts[index : index + 2]
        order = out["order"][self._layout.order_of(index)] if packing.ordered else None
        packing.pack(part, out["weight"][start:end], order)
        if part.bias is not None:
            out["bias"].narrow(0, self._layout.firsts[index], len(part.bias)).copy_(part.bias)

    def finish(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parameters with one order for all, where they are equal."""
        orders = params.get("order")
        if orders is None or not bool((orders == orders[0]).all()):
            return params
        return {**params, "order": orders[:1].clone()}

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return `x @ weight.T + bias`, of an embedding, an output projection or a router in float32."""
        orders, bias = params.get("order"), params.get("bias")
        runs = self._joined if orders is None or len(orders) == 1 else self._apart
        if len(runs) == 1:
            return gemm.linear(x, self._weight(runs[0], params), bias, dtype=self._result)
        y = torch.empty(x.shape[0], self._layout.outputs, dtype=self._result)
        for run in runs:
            some = None if bias is None else bias.narrow(0, run.first, run.rows)
            gemm.apply(x, self._weight(run, params), some, y.narrow(1, run.first, run.rows))
        return y

    def look_up(self, ids: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return the rows that the token ids name, decoded."""
        return gemm.lookup(self._weight(self._joined[0], params), ids, self.place.dtype)

    def _packing(self, form: WeightForm) -> Packing:
        return opened(form, self.place.dtype)

    def _flags(self) -> int:
        return 0

    def _weight(self, run: Run, params: Mapping[str, Tensor]) -> PackedWeight:
        data = params["weight"]
        data = data if run.size == len(data) else data.narrow(0, run.start, run.size)
        order = None
        if run.order is not None:
            orders = params["order"]
            order = orders[run.order if len(orders) > 1 else 0]
        return PackedWeight(run.kind, run.rows, self.place.site.in_features, data, order, self._asked)


class LinearProduct(PackedProduct):
    """Weights as they are stored, where there is a kernel."""

    def __init__(self, place: ProductPlace, options: Mapping[str, Any]) -> None:
        self._options = self._read(options)
        super().__init__(place, options)

    def _read(self, options: Mapping[str, Any]) -> ProductOptions:
        return ProductOptions.model_validate(dict(options))

    def _flags(self) -> int:
        asked = self._options.asked
        # Which experts a token has depends on nothing but the token, and on no rounding that an option asks for.
        return (asked & ~COARSE) | FINE | BY_ROW if self.place.site.kind == ROUTER else asked

    def _packing(self, form: WeightForm) -> Packing:
        return as_stored(form, self.place.site.in_features)


class LookupProduct(LinearProduct):
    """Embeddings and output projections as they are stored, or rounded to 8 bits where that is plain numbers."""

    _options: LookupOptions

    def _read(self, options: Mapping[str, Any]) -> ProductOptions:
        return LookupOptions.model_validate(dict(options))

    def _packing(self, form: WeightForm) -> Packing:
        """Return the packing; rows are decoded one by one, so that none may have its inputs in another order."""
        packing = super()._packing(form)
        if packing.ordered:
            packing = Dense(self.place.dtype)
        if not isinstance(packing, Dense) or not self._options.rounds(self.place.method):
            return packing
        site, whole = self.place.site, self.place.site.in_features % BLOCK == 0
        if whole:
            how = f"rounded to 8 bits in blocks of {BLOCK}; cpu_lookup.head=checkpoint keeps the checkpoint's"
        else:
            how = f"kept in {self.place.dtype}: {site.in_features} inputs are no whole blocks of {BLOCK}"
        _LOG.info("%s '%s' (cpu_lookup.head=%s): %s", site.kind, site.prefix, self._options.head, how)
        return Blocks(Format.Q8_0) if whole else packing
