"""Operations and weights of plugins' own kinds, as models get them: whose code raised is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.api.errors import PluginError
from core.layers.guard import PASSED
from core.layers.params import Parameterised
from core.plugins.drivers import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from core.api.quantization import LayerSite
    from core.layers.guard import LayerContext, Place
    from core.layers.weights import WeightGroup
    from core.ops.registry import Op


class Operation:
    """A form of an operation.

    Args:
        place: What it is, and whose.
    """

    def __init__(self, form: Op, place: Place) -> None:
        self._form, self._place = form, place

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the form. Raises `PluginError` CORE-P108, it raised an error without a code."""
        try:
            return self._form(*arguments, **named)
        except PASSED:
            raise
        except Exception as error:
            raise _raised(self._place, error) from error


class WeightsLayer(Parameterised):
    """A layer of a plugin's own kind.

    Attributes:
        site: Kind and sizes of the layer.
        splits: Outputs of each part, in order.
    """

    def __init__(self, site: LayerSite, group: WeightGroup, context: LayerContext) -> None:
        self.site, self.group = site, group
        self.splits = [rows for _, rows in site.parts]
        self._apply: Callable[..., Any] = group.product.apply
        self._place = context.place(f"{site.kind} '{site.prefix}'", group.owners[1])
        group.layers.append(self)

    def __call__(self, *inputs: Any) -> Any:
        """Apply the product. Raises `PluginError` CORE-P108, it raised an error without a code."""
        try:
            return self._apply(*inputs, self.params)
        except PASSED:
            raise
        except Exception as error:
            raise _raised(self._place, error) from error


def _raised(place: Place, error: Exception) -> PluginError:
    where = f"{place.plugin}, {place.layer} of {place.model}"
    return PluginError("CORE-P108", f"{where}: it raised {describe(error)}.")
