"""What a GPTQ checkpoint says of itself. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.api import (
    PLAIN,
    CheckpointError,
    CheckpointInfo,
    LayerSite,
    ProbeResult,
    QuantRequest,
    Verdict,
    WeightForm,
)

BITS = (2, 3, 4, 8)
FORMATS = ("gptq", "gptq_v2")


@dataclass(frozen=True, slots=True)
class GPTQConfig:
    """Settings of a checkpoint.

    Attributes:
        group_size: Inputs that share a scale; -1 for all of them.
        zero_offset: What is added to stored zero points.
        symmetric: Whether every zero point is the middle of the codes, 8 of 16.
        ordered: Whether inputs belong to groups in any order (`desc_act`).
        head: Whether the output projection is quantized.
        plain: Parts of the module paths of layers that are not quantized.
    """

    bits: int
    group_size: int
    zero_offset: int
    symmetric: bool
    ordered: bool
    head: bool
    plain: tuple[str, ...]

    @staticmethod
    def read(given: Mapping[str, object]) -> GPTQConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        if reasons := reasons_against(given):
            raise CheckpointError(
                "CORE-M160",
                f"this GPTQ checkpoint cannot be read: {'; '.join(reasons)}.",
                hint="Supported are 2, 3, 4 and 8 bits in the formats 'gptq' and 'gptq_v2', the same everywhere.",
            )
        size, listed = int(str(given.get("group_size", 128))), given.get("modules_to_not_convert") or ()
        return GPTQConfig(
            bits=int(str(given.get("bits", 4))),
            group_size=size,
            zero_offset=0 if given.get("checkpoint_format") == "gptq_v2" else 1,
            symmetric=given.get("sym") is True,
            ordered=bool(given.get("desc_act")) and size != -1,
            head=given.get("lm_head") is True,
            plain=tuple(str(name) for name in listed) if isinstance(listed, (list, tuple)) else (),
        )

    @property
    def form(self) -> WeightForm:
        """Form of the layers that are quantized."""
        return WeightForm(
            codes="int",
            bits=self.bits,
            inputs=max(self.group_size, 0),
            zeros=not self.symmetric,
            ordered=self.ordered,
        )

    def quantizes(self, site: LayerSite, part: str) -> bool:
        """Whether this part of a layer is quantized."""
        known = site.inner or (self.head and site.kind == "lm_head")
        return known and not any(name in site.module(part) for name in self.plain)


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse other bit widths and formats while methods are chosen."""
    return Verdict.of(*reasons_against(request.checkpoint))


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the form of codes and the plain one, each with the number of its matrices."""
    form = GPTQConfig.read(checkpoint.quantization_config).form
    ends = [name.rpartition(".")[2] for name, (shape, _) in checkpoint.tensors.items() if len(shape) == 2]
    found = {form: ends.count("qweight"), PLAIN: ends.count("weight")}
    return {one: count for one, count in found.items() if count} or {form: 0}


def reasons_against(given: Mapping[str, object]) -> list[str]:
    """Return everything in a `quantization_config` that is not understood."""
    bits, size, form = given.get("bits", 4), given.get("group_size", 128), given.get("checkpoint_format") or "gptq"
    whole = type(size) is int and (size > 0 or size == -1)
    reasons = (
        None
        if type(bits) is int and bits in BITS
        else f"weights of {bits!r:.60} bits, not {', '.join(map(str, BITS))}",
        None if form in FORMATS else f"format {form!r:.60}, not {' or '.join(map(repr, FORMATS))}",
        None if whole else f"groups of {size!r:.60} inputs",
        "settings that differ from layer to layer ('dynamic')" if given.get("dynamic") else None,
        "weights in marlin's order ('is_marlin_format')" if given.get("is_marlin_format") else None,
    )
    return [reason for reason in reasons if reason]
