"""Parameters of layers: what was declared, which checkpoint tensors fill it, and who reads it once it is filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from core.api.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.weights import WeightTensor

Params = dict[str, "Tensor"]
Decode = Callable[[str, "WeightTensor"], "Tensor"]
Finalize = Callable[[Params], Params]


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """A declared parameter; `rows` as in `ParamBuilder.declare`."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    rows: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Target:
    """Where one checkpoint tensor goes: rows `start` to `start + rows` of a parameter, all of it if `rows` is None."""

    group: ParamGroup
    param: str
    start: int
    rows: int | None

    def slot(self, params: Mapping[str, Tensor]) -> Tensor:
        """Return the part of the storage that the tensor fills."""
        whole = params[self.param]
        return whole if self.rows is None else whole.narrow(0, self.start, self.rows)


class Parameterised:
    """A layer that reads parameters. `params` is replaced as a whole when weights are (re)loaded."""

    params: Params

    def bind(self, params: Params) -> None:
        """Use these parameters from now on."""
        self.params = params


class ParamGroup:
    """The parameters that one set of checkpoint tensors under `prefix` fills: those of a layer, or of a tied pair.

    It is the `ParamBuilder` of its layer.

    Attributes:
        optional: Whether a checkpoint may lack any of its tensors.
        owner: Whose `decode` fills them, for errors.
    """

    optional = False
    owner = "the quantization method"

    def __init__(self, prefix: str, decode: Decode) -> None:
        self.prefix = prefix
        self.decode = decode
        self.specs: list[ParamSpec] = []
        self._readers: list[tuple[Parameterised, Finalize]] = []
        self._sizes: list[int] = []

    def declare(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype, *, rows: Sequence[tuple[str, int]] = ()
    ) -> None:
        """Declare a parameter, see `core.api.quantization.ParamBuilder`."""
        if rows and sum(count for _, count in rows) != shape[0]:
            raise ValueError(f"parameter {self.prefix}.{name}: parts {tuple(rows)} do not make {shape[0]} rows")
        self.specs.append(ParamSpec(name, tuple(shape), dtype, tuple(rows)))

    def read_by(self, layer: Parameterised, finalize: Finalize, *, final_bytes: int = 0) -> None:
        """Let `layer` read these parameters in the form that `finalize` gives them.

        Args:
            final_bytes: What this form takes at least.
        """
        self._readers.append((layer, finalize))
        self._sizes.append(final_bytes)

    @property
    def final_bytes(self) -> int:
        """What the parameters take at least once they are filled; readers may share one form."""
        return max(self._sizes, default=0)

    def targets(self) -> dict[str, Target]:
        """Return checkpoint tensor name -> where it goes."""
        found: dict[str, Target] = {}
        for spec in self.specs:
            start = 0
            for part, rows in spec.rows:
                module = f"{self.prefix}.{part}" if part else self.prefix
                found[f"{module}.{spec.name}"] = Target(self, spec.name, start, rows)
                start += rows
            if not spec.rows:
                found[f"{self.prefix}.{spec.name}"] = Target(self, spec.name, 0, None)
        return found

    def allocate(self, device: torch.device) -> Params:
        """Return uninitialised storage for every parameter."""
        return {spec.name: torch.empty(spec.shape, dtype=spec.dtype, device=device) for spec in self.specs}

    def finalize(self, params: Params) -> list[tuple[Parameterised, Params]]:
        """Return every reader with its final parameters; nothing is bound yet."""
        return [(layer, finalize(dict(params))) for layer, finalize in self._readers]


def targets_of(groups: Sequence[ParamGroup]) -> dict[str, Target]:
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
