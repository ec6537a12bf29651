"""Quantization: what a layer's parameters are, how checkpoint tensors fill them, how they are applied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from core.api.verdict import ProbeResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch import Tensor

    from core.api.descriptors import QuantSpec
    from core.api.weights import WeightTensor


@dataclass(frozen=True, slots=True)
class QuantRequest:
    """What a checkpoint needs of its quantization method.

    Attributes:
        method: The method that stored the weights; `none` for plain ones.
        device_type: torch device type.
        dtype: Compute dtype that the user asked for; `auto` while that is open.
        checkpoint: The checkpoint's own description of its quantization (`quantization_config`). A GGUF file's has
            `types`, type -> number of tensors, and `tensors`, name -> type of every matrix.
    """

    method: str
    device_type: str
    dtype: str
    checkpoint: Mapping[str, object] = field(default_factory=dict)

    def check(self, spec: QuantSpec, probe: ProbeResult) -> Verdict:
        """Hold this request against a method's data and return every reason against it."""
        lacking = sorted(feature for feature in spec.needs if not probe.has(feature))
        fits_device = {self.device_type, "*"} & spec.devices
        return Verdict.of(
            f"the platform lacks {', '.join(lacking)}" if lacking else None,
            None if self.method in spec.methods else f"reads {', '.join(sorted(spec.methods))}, not {self.method}",
            None if fits_device else f"device {self.device_type} not in {{{', '.join(sorted(spec.devices))}}}",
            None if self.dtype in {"auto", *spec.dtypes} else f"computes in {', '.join(sorted(spec.dtypes))}",
        )


@dataclass(frozen=True, slots=True)
class LayerSite:
    """A place in the model that has weights.

    Attributes:
        kind: Role of the layer.
        prefix: Its module path; of a head that is tied to an embedding, the embedding's.
        in_features: Columns of the weight.
        parts: `(name, rows)` of every checkpoint tensor stacked into the weight, in order; a plain layer has one
            part with an empty name.
        bias: Whether the layer has a bias of `sum(rows)` elements.
    """

    kind: Literal["linear", "embedding", "lm_head"]
    prefix: str
    in_features: int
    parts: Sequence[tuple[str, int]]
    bias: bool = False


@dataclass(frozen=True, slots=True)
class QuantContext:
    """What a scheme is made with.

    Attributes:
        device, dtype: Where and in what the layers compute.
        checkpoint: The checkpoint's own description of its quantization.
        options: The plugin's options, complete if its descriptor names an options model.
    """

    device: torch.device
    dtype: torch.dtype
    checkpoint: Mapping[str, object]
    options: Mapping[str, object] = field(default_factory=dict)


class ParamBuilder(Protocol):
    """Where a layer declares its parameters; core owns sharding and filling."""

    def declare(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype, *, rows: Sequence[tuple[str, int]] = ()
    ) -> None:
        """Declare parameter `name`.

        Args:
            rows: `(part, rows along dim 0)` when several checkpoint tensors are stacked into it: part `p` of
                parameter `weight` is filled from `<prefix>.<p>.weight`, an empty part name from `<prefix>.weight`.
        """
        ...


class LayerQuant(Protocol):
    """How one layer stores and applies its weights."""

    def declare(self, params: ParamBuilder) -> None:
        """Declare every parameter that checkpoint tensors fill. Not called for a head that is tied to an embedding."""
        ...

    def decode(self, param: str, tensor: WeightTensor) -> Tensor:
        """Turn a checkpoint tensor into what the declared parameter holds (same shape as its part)."""
        ...

    def finalize(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Repack after the last tensor; pure and repeatable, so that weights can be loaded again."""
        ...

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """`(tokens, in) -> (tokens, out)`, bias included; for an embedding `(tokens,) int64 -> (tokens, in)`.

        Core has compared `x` with the site and the compute dtype.
        """
        ...


class TellsSize(Protocol):
    """Optional part of a `LayerQuant`: what the layer's weights take, known before any of them is read.

    Without it a start finds out that they leave too little memory for the KV cache only once they are loaded.
    """

    def final_bytes(self) -> int:
        """Return the bytes of what `finalize` gives, or fewer: a start is refused for too many."""
        ...


class QuantScheme(Protocol):
    """Runtime of a `QuantSpec`, for one checkpoint. Its layers may be a `TellsSize`."""

    def __init__(self, ctx: QuantContext) -> None: ...

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored; a layer that the checkpoint leaves plain gets the plain form."""
        ...
