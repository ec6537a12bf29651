"""What an AWQ checkpoint says of itself. Torch-free."""

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

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Output, of eight, that each nibble of a word belongs to, the lowest nibble first."""


@dataclass(frozen=True, slots=True)
class AWQConfig:
    """Settings of a checkpoint.

    Attributes:
        group_size: Inputs that share a scale; -1 for all of them.
        plain: Parts of the module paths of layers that are not quantized.
    """

    group_size: int
    plain: tuple[str, ...]

    @staticmethod
    def read(given: Mapping[str, object]) -> AWQConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        if reasons := reasons_against(given):
            raise CheckpointError(
                "CORE-M160",
                f"this AWQ checkpoint cannot be read: {'; '.join(reasons)}.",
                hint="Supported are 4 bits in the layout 'gemm', in groups of any size (-1: all inputs).",
            )
        listed = given.get("modules_to_not_convert") or ()
        return AWQConfig(
            int(str(_group_size(given))),
            tuple(str(name) for name in listed) if isinstance(listed, (list, tuple)) else (),
        )

    @property
    def form(self) -> WeightForm:
        """Form of the layers that are quantized."""
        return WeightForm(codes="int", bits=4, inputs=max(self.group_size, 0), zeros=True)

    def quantizes(self, site: LayerSite, part: str) -> bool:
        """Whether this part of a layer is quantized."""
        return site.inner and not any(name in site.module(part) for name in self.plain)


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse other bit widths and layouts while methods are chosen."""
    return Verdict.of(*reasons_against(request.checkpoint))


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the form of codes and the plain one, each with the number of its matrices."""
    form = AWQConfig.read(checkpoint.quantization_config).form
    ends = [name.rpartition(".")[2] for name, (shape, _) in checkpoint.tensors.items() if len(shape) == 2]
    found = {form: ends.count("qweight"), PLAIN: ends.count("weight")}
    return {one: count for one, count in found.items() if count} or {form: 0}


def reasons_against(given: Mapping[str, object]) -> list[str]:
    """Return everything in a `quantization_config` that is not understood."""
    bits, layout, size = given.get("bits", given.get("w_bit", 4)), given.get("version", "gemm"), _group_size(given)
    whole = type(size) is int and (size > 0 or size == -1)
    reasons = (
        None if bits == 4 else f"weights of {bits!r:.60} bits, not 4",
        None if str(layout).lower() == "gemm" else f"layout {layout!r:.60}, not 'gemm'",
        None if whole else f"groups of {size!r:.60} inputs",
    )
    return [reason for reason in reasons if reason]


def _group_size(given: Mapping[str, object]) -> object:
    return given.get("group_size", given.get("q_group_size", 128))
