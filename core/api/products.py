"""Products: how a layer multiplies with weights of certain forms. Provisional, as all kernels are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor

    from core.api.forms import Part, WeightForm
    from core.api.quantization import LayerSite

    Sizes = Mapping[str, tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True, slots=True)
class ProductPlace:
    """The layer that a product is made for.

    Attributes:
        site: Kind, sizes and parts of the layer; its parts are those that the product multiplies with.
        forms: Form of each of the site's parts.
        device, dtype: Where and in what it computes.
        method: How the checkpoint says that it stores weights (`none`, `gptq`, ...).
    """

    site: LayerSite
    forms: tuple[WeightForm, ...]
    device: torch.device
    dtype: torch.dtype
    method: str = "none"


class Product:
    """Multiplies with the weight of one layer: `impl` of a `KernelSpec` of the operation `linear` or `lookup`.

    It keeps sizes only; what it makes of the weights lies in the layer's parameters, which are replaced as a whole.

    Args:
        options: The plugin's own options.
    """

    def __init__(self, place: ProductPlace, options: Mapping[str, Any]) -> None:
        self.place = place

    def sizes(self) -> Sizes:
        """Return shape and dtype of every parameter; core allocates them before the first part is packed."""
        raise NotImplementedError

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Write part `index` of the site into the parameters, bias included. Parts come one by one, in any order.

        Repeatable: the weights may be loaded again, into other memory.
        """
        raise NotImplementedError

    def finish(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parameters that layers use, once every part is packed."""
        return params

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """`(tokens, inputs) -> (tokens, outputs)`, bias included; in any float dtype for an output projection.

        Core has compared `x` with the site and the compute dtype.
        """
        raise NotImplementedError

    def look_up(self, ids: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """`(tokens,) int64 -> (tokens, inputs)`: the rows of these outputs. Asked of the operation `lookup` only."""
        raise NotImplementedError
