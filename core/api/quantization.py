"""Quantization: what a layer stores, and formats, which read it from the tensors of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from core.api.verdict import ProbeResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from core.api.descriptors import QuantSpec
    from core.api.forms import Part, Stored, WeightForm
    from core.api.weights import WeightTensor


@dataclass(frozen=True, slots=True)
class QuantRequest:
    """Requirements of a checkpoint on its quantization method.

    Attributes:
        method: The method that stored the weights; `none` for plain ones.
        device_type: torch device type.
        dtype: Compute dtype that the user asked for; `auto` while that is open.
        checkpoint: The checkpoint's own description of its quantization (`quantization_config`). A GGUF file's has
            `types`, type -> number of tensors; `tensors`, name -> type of every matrix; and `undecodable`, type -> one
            of its tensors, of the types that only `WeightTensor.raw` gives.
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


ROUTER = "router"
"""Kind of the layer that scores experts: its results are float32, whatever the compute dtype."""


@dataclass(frozen=True, slots=True)
class LayerSite:
    """A place in the model that has weights. Sizes are those of this rank.

    Attributes:
        kind: Role of the layer: `linear`, `embedding`, `lm_head`, `router`, `experts`, or another that a model plugin
            gave it (`LayerBuilder.weights`). A format reads weights of a kind that it does not know as those of a
            linear layer.
        prefix: Its module path; of a head that is tied to an embedding, the embedding's.
        in_features: Columns of the weight.
        parts: `(name, rows)` of every matrix stacked into the weight, in order; a plain layer has one part with an
            empty name.
        bias: Whether the layer has a bias of `sum(rows)` elements.
        experts: Of how many experts it is the weight; 0: it is not one of experts. Its parts are those of the first
            expert, then those of the second, and so on, all alike.
        fused: Name of the one module whose stored tensors hold all parts; None: each part has tensors of its own.
        split: How a fused tensor holds its parts: one after another (`halves`), or by turns (`interleaved`).
    """

    kind: str
    prefix: str
    in_features: int
    parts: Sequence[tuple[str, int]]
    bias: bool = False
    experts: int = 0
    fused: str | None = None
    split: Literal["halves", "interleaved"] = "halves"

    @property
    def inner(self) -> bool:
        """Whether it multiplies hidden states inside the model, as most quantized layers do: no embedding, no output
        projection, no router."""
        return self.kind not in ("embedding", "lm_head", ROUTER)

    @property
    def rows(self) -> int:
        """Outputs of all parts."""
        return sum(rows for _, rows in self.parts)

    def module(self, part: str) -> str:
        """Return the path of the module that stores a part."""
        name = part if self.fused is None else self.fused
        return f"{self.prefix}.{name}" if name else self.prefix


@dataclass(frozen=True, slots=True)
class QuantContext:
    """Context that a quantization format is constructed with.

    Attributes:
        device, dtype: Where and in what the layers compute.
        checkpoint: The checkpoint's own description of its quantization.
        options: The plugin's options, complete if its descriptor names an options model.
    """

    device: torch.device
    dtype: torch.dtype
    checkpoint: Mapping[str, object]
    options: Mapping[str, object] = field(default_factory=dict)


class Format(Protocol):
    """Runtime of a `QuantSpec`, for one checkpoint: reads its tensors. It keeps nothing of what it has read."""

    def __init__(self, ctx: QuantContext) -> None: ...

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return in which form the checkpoint stores a part; one that it leaves plain has the form `PLAIN`."""
        ...

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return the tensors of a part's weight; core adds its bias.

        The sizes of `site` are here those that the tensors have in the checkpoint: of a layer before ranks divide it,
        of a fused module all of its outputs for each part.
        """
        ...

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return the part that `tensors`, by suffix, hold.

        They are cut: of a fused tensor, or of a layer that ranks divide, they hold what belongs to this part of the
        site, and have its sizes; where one of them is `whole`, none is cut, and `site` has the sizes of all. Those of
        other forms than `form` told (plain numbers of an update) are read as what they are.

        Raises:
            CheckpointError: CORE-M160, they are not what the checkpoint says of itself.
        """
        ...
