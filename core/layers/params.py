"""Parameters of layers: groups that checkpoint tensors fill, and who reads them once they are filled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

import torch

from core.api.errors import CheckpointError, CoreError

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.weights import WeightTensor

Params = dict[str, "Tensor"]
Decode = Callable[[str, "WeightTensor"], "Tensor"]
Finalize = Callable[[Params], Params]


INVENTED = 0.02
"""Standard deviation of made-up values."""


def generator(prefix: str, device: torch.device) -> torch.Generator:
    """Return what made-up values of the layer with this module path are drawn from: on the device, which is quick."""
    return torch.Generator(device).manual_seed(crc32(prefix.encode()))


class Parameterised:
    """A layer that reads parameters. `params` is replaced as a whole when weights are (re)loaded."""

    params: Params

    def bind(self, params: Params) -> None:
        """Use these parameters from now on."""
        self.params = params


class Filling(Protocol):
    """New parameters of a group, from the first tensor that fills them to their final form."""

    def take(self, key: Hashable, tensor: WeightTensor) -> int:
        """Take the tensor of the target with this key; return the bytes that were written by it."""
        ...

    def ready(self) -> list[tuple[Parameterised, Params]]:
        """Return every layer that reads the group with its parameters; nothing is bound yet."""
        ...


class Group(Protocol):
    """Parameters of one layer, or of a pair that shares them.

    Attributes:
        prefix: Module path of the layer.
    """

    prefix: str

    @property
    def final_bytes(self) -> int:
        """Least bytes of the parameters once they are filled."""
        ...

    def targets(self) -> Mapping[str, Target]:
        """Return checkpoint tensor name -> where it goes."""
        ...

    def filling(self, device: torch.device) -> Filling:
        """Return new storage, to be filled."""
        ...

    def invented(self, device: torch.device) -> list[tuple[Parameterised, Params]]:
        """Return every layer that reads the group with parameters that are made up, equal each time."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """Where one checkpoint tensor goes.

    Attributes:
        key: What the group calls the place.
        optional: Whether the checkpoint may lack the tensor.
    """

    group: Group
    key: Hashable
    optional: bool = False


class ParamGroup:
    """Parameters that are one checkpoint tensor each, `<prefix>.<name>`: of norms, of the scales of a cache.

    Attributes:
        optional: Whether a checkpoint may lack any of its tensors.
    """

    optional = False

    def __init__(self, prefix: str, decode: Decode) -> None:
        self.prefix = prefix
        self.decode = decode
        self.specs: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        self._readers: list[tuple[Parameterised, Finalize]] = []

    def declare(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        """Declare parameter `name`."""
        self.specs[name] = (shape, dtype)

    def read_by(self, layer: Parameterised, finalize: Finalize) -> None:
        """Let `layer` read these parameters in the form that `finalize` gives them."""
        self._readers.append((layer, finalize))

    @property
    def final_bytes(self) -> int:
        """Nothing to speak of."""
        return 0

    def targets(self) -> dict[str, Target]:
        """Return checkpoint tensor name -> where it goes."""
        path = f"{self.prefix}." if self.prefix else ""
        return {f"{path}{name}": Target(self, name, self.optional) for name in self.specs}

    def filling(self, device: torch.device) -> ParamFilling:
        """Return new storage, to be filled."""
        return ParamFilling(self, self.allocate(device))

    def invented(self, device: torch.device) -> list[tuple[Parameterised, Params]]:
        """Return every reader with made-up parameters: weights of norms near 1, all others near 0."""
        params, random = self.allocate(device), generator(self.prefix, device)
        for name, slot in params.items():
            values = torch.randn(slot.shape, generator=random, device=random.device) * INVENTED
            slot.copy_(values + 1 if name == "weight" else values)
        return self.finalize(params)

    def allocate(self, device: torch.device) -> Params:
        """Return uninitialised storage for every parameter."""
        return {name: torch.empty(shape, dtype=dtype, device=device) for name, (shape, dtype) in self.specs.items()}

    def finalize(self, params: Params) -> list[tuple[Parameterised, Params]]:
        """Return every reader with its final parameters."""
        return [(layer, finalize(dict(params))) for layer, finalize in self._readers]


class ParamFilling:
    """New parameters of a `ParamGroup`."""

    def __init__(self, group: ParamGroup, storage: Params) -> None:
        self._group, self._storage = group, storage

    def take(self, key: Hashable, tensor: WeightTensor) -> int:
        """Copy a tensor to its place."""
        name, slot = str(key), self._storage[str(key)]
        with unusable(f"the checkpoint tensor '{tensor.name}'"):
            value = self._group.decode(name, tensor)
        if value.shape != slot.shape:
            raise misfit(tensor.name, tuple(value.shape), tuple(slot.shape))
        slot.copy_(value)
        release(tensor)
        return slot.nbytes

    def ready(self) -> list[tuple[Parameterised, Params]]:
        """Return every layer with its parameters."""
        with unusable(f"layer '{self._group.prefix}'"):
            return self._group.finalize(self._storage)


class unusable:  # noqa: N801 - reads as a statement
    """Tells an error without a code, in what is done with the values of `what`, as CORE-M203."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, (CoreError, MemoryError, torch.OutOfMemoryError)):
            return
        found = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        hint = "The checkpoint is damaged, or its quantization method has a bug."
        raise CheckpointError("CORE-M203", f"the values of {self._what} cannot be used: {found}.", hint=hint) from error


def misfit(name: str, given: tuple[int, ...], wanted: tuple[int, ...]) -> CheckpointError:
    """Return the error of a tensor of another shape than the model needs: CORE-M122."""
    return CheckpointError(
        "CORE-M122",
        f"the checkpoint tensor '{name}' has shape {given}, but the model that its configuration describes needs "
        f"{wanted}.",
        hint="The weights and config.json do not belong together.",
    )


def release(tensor: WeightTensor) -> None:
    """Say that a tensor's values were taken."""
    done: Callable[[], None] | None = getattr(tensor, "release", None)
    if done is not None:
        done()


def targets_of(groups: Sequence[Group]) -> dict[str, Target]:
    """Return the targets of all groups.

    Raises:
        CheckpointError: CORE-M123 when two layers ask for the same tensor.
    """
    found: dict[str, Target] = {}
    for group in groups:
        for name, target in group.targets().items():
            if name in found:
                raise CheckpointError("CORE-M123", f"two layers of the model ask for the checkpoint tensor '{name}'.")
            found[name] = target
    return found
