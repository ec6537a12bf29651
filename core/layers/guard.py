"""Checks of layers: arguments, and answers of plugins, are compared with what the layers were built for.

The comparison comes before a plugin's code: a native kernel trusts the sizes that it is told. It compares a few known
numbers; what is wrong is worked out only once something is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from core.api.errors import CoreError, PluginError
from core.plugins.drivers import describe

if TYPE_CHECKING:
    from core.api.attention import AttentionSite, CompressedSite, LatentSite, PickSite

PASSED = (CoreError, MemoryError, torch.OutOfMemoryError)
"""Errors that are nobody's mistake, or say themselves whose it is."""

MISSING: Any = object()
"""Stands for the result of a call that did not come back."""

_REPORT = "Report it to the plugin's author."


class Owners(NamedTuple):
    """Owners of the code that takes part in a forward pass: kind, name, distribution and version, for errors."""

    model: str = "the model"
    attention: str = "the attention backend"
    quantization: str = "the quantization method"
    platform: str = "the platform"


class Operand(NamedTuple):
    """A tensor that is passed or returned, and what it should be.

    Attributes:
        shape: Wanted sizes; a text stands for any size, and names it.
    """

    name: str
    given: object
    shape: tuple[int | str, ...]
    dtype: torch.dtype | None

    def problem(self, device: torch.device) -> str | None:
        """Return what is wrong with it, in words; None if nothing is."""
        given = self.given
        if (
            isinstance(given, Tensor)
            and given.dim() == len(self.shape)
            and all(isinstance(want, str) or want == size for want, size in zip(self.shape, given.shape))
            and self.dtype in (None, given.dtype)
            and given.device.type == device.type
        ):
            return None
        return f"{self.name} is {shown(given)}; expected {_sizes(self.shape)}{_dtype(self.dtype)} on {device}"


class Place(NamedTuple):
    """A layer of the model, for errors.

    Attributes:
        layer: Its kind and its module path or number.
        plugin: Who implements it.
        model: Who calls it.
    """

    layer: str
    plugin: str
    model: str
    device: torch.device

    def fail(self, call: str, operands: Iterable[Operand], result: Operand, cause: Exception | None) -> NoReturn:
        """Say why a call of the layer failed.

        Args:
            call: The plugin's method.
            operands: What the model passed.
            result: What the method returned; `MISSING` if it did not.
            cause: What was raised, by the method or while the operands were looked at.

        Raises:
            PluginError: CORE-P170, an operand does not fit; CORE-P171, the result does not; CORE-P108, it raised.
        """
        if isinstance(cause, PASSED):
            raise cause
        found = [problem for operand in operands if (problem := operand.problem(self.device)) is not None]
        if found:
            raise PluginError("CORE-P170", f"{self.model} called {self.layer}: {'; '.join(found)}.", hint=_REPORT)
        where = f"{self.plugin}, {self.layer} of {self.model}: {call}"
        wrong = None if result.given is MISSING else result.problem(self.device)
        if wrong is not None:
            raise PluginError("CORE-P171", f"{where}: {wrong}.", hint=_REPORT)
        how = "failed" if cause is None else f"raised {describe(cause)}"
        raise PluginError("CORE-P108", f"{where} {how}.") from cause


class LayerContext(NamedTuple):
    """Context that all layers of a model share.

    Attributes:
        device, dtype: Where and in what they compute.
    """

    device: torch.device
    dtype: torch.dtype
    owners: Owners = Owners()

    def attention(self, site: AttentionSite | LatentSite | PickSite | CompressedSite) -> Place:
        """Return the place of what has KV layer `site.layer`."""
        return Place(f"attention layer {site.layer}", self.owners.attention, self.owners.model, self.device)

    def place(self, layer: str, plugin: str) -> Place:
        """Return the place of a layer that a plugin implements."""
        return Place(layer, plugin, self.owners.model, self.device)


@contextmanager
def blamed(owner: str, what: str) -> Iterator[None]:
    """Attribute an exception without a code in a plugin's code: CORE-P108."""
    try:
        yield
    except PASSED:
        raise
    except Exception as error:
        raise PluginError("CORE-P108", f"{owner}: {what} raised {describe(error)}.") from error


def require(provider: object, owner: str, members: tuple[str, ...], what: str, *features: str) -> None:
    """Raise if an attention backend, or a layer of one, lacks what a model needs, although it was chosen for it.

    Args:
        owner: Whose it is, for errors.
        members: What it must have.
        what: The same in words, for errors.
        features: Names that a model's shape and a backend's descriptor have for it, for errors.

    Raises:
        PluginError: CORE-P110.
    """
    if any(getattr(provider, member, None) is None for member in members):
        names = " or ".join(map(repr, features))
        hint = f"The model's shape must name {names} among its features, or the backend must not."
        raise PluginError("CORE-P110", f"the model needs {what}, which {owner} lacks.", hint=hint)


def rows_of(given: object) -> int | str:
    """Return the first size of a tensor, for what has to have as many rows; a name for it if there is none."""
    return given.shape[0] if isinstance(given, Tensor) and given.dim() else "tokens"


def shown(given: object) -> str:
    """Return what a value is, in words: shape, dtype and device of a tensor, the type of anything else."""
    if not isinstance(given, Tensor):
        return "None" if given is None else f"a {type(given).__name__}"
    return f"{_sizes(tuple(given.shape))}{_dtype(given.dtype)} on {given.device}"


def _sizes(shape: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


def _dtype(dtype: torch.dtype | None) -> str:
    return "" if dtype is None else f" {str(dtype).removeprefix('torch.')}"
