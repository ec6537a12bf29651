"""Products: how a layer multiplies with weights of certain forms. Provisional, as all kernels are."""

from __future__ import annotations

from dataclasses import dataclass, field
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
        dims: Further sizes, by name, of a layer that a model asked for by `LayerBuilder.weights`.
    """

    site: LayerSite
    forms: tuple[WeightForm, ...]
    device: torch.device
    dtype: torch.dtype
    method: str = "none"
    dims: Mapping[str, int] = field(default_factory=dict)


class Product:
    """Multiplies with the weight of one layer: `impl` of a `KernelSpec` that names `forms`.

    It keeps sizes only; what it makes of the weights lies in the layer's parameters, which are replaced as a whole.
    These methods are all that core calls: a public method of another name is refused as a misspelt one, so helpers
    begin with `_`.

    The product of an operation that a plugin brings may have another `apply`: the model's arguments, then `params`, as
    the operation's reference form says.

    Args:
        options: The plugin's own options.
    """

    def __init__(self, place: ProductPlace, options: Mapping[str, Any]) -> None:
        self.place = place

    @property
    def layout(self) -> str:
        """Key of the contents that `pack` and `finish` may give the parameters, for equal parts: the format,
        its version, whatever of the machine or the options it depends on. Where it is not empty, parameters may be
        kept in a weight store, and given to another product of this class, place and layout. `finish` then keeps their
        names, dtypes and numbers of dimensions, and makes none larger.
        """
        return ""

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


class WrappedProduct(Product):
    """A product in front of another, for `core_layer`: what a subclass does not change goes to the other.

    Attributes:
        inner: The product behind it.
    """

    def __init__(self, inner: Product) -> None:
        super().__init__(inner.place, {})
        self.inner = inner

    @property
    def layout(self) -> str:
        """The other's, unless a subclass packs in another way and does not say how."""
        own = type(self)
        same = all(getattr(own, name) is getattr(WrappedProduct, name) for name in ("sizes", "pack", "finish"))
        inner = self.inner
        return f"{type(inner).__module__}.{type(inner).__qualname__} {inner.layout}" if same and inner.layout else ""

    def sizes(self) -> Sizes:
        """Return the other's parameters."""
        return self.inner.sizes()

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Let the other write the part."""
        self.inner.pack(part, index, out)

    def finish(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what the other makes of the parameters."""
        return self.inner.finish(params)

    def apply(self, *inputs: Any) -> Tensor:
        """Return the other's product; the last of `inputs` is the parameters."""
        return self.inner.apply(*inputs)

    def look_up(self, ids: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return the other's rows."""
        return self.inner.look_up(ids, params)
