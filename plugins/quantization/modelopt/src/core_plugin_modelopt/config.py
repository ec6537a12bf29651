"""Quantization settings of a ModelOpt checkpoint. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from core_plugin_unquantized.names import listed, names_module
from pydantic import BaseModel, ConfigDict, Field

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

_FP4 = WeightForm(codes="e2m1", inputs=16, scale="e4m3")
_FP8 = "float8_e4m3fn"

ALGORITHMS: Mapping[str, WeightForm] = {
    "NVFP4": _FP4.replace(activations="e2m1:16"),
    "W4A16_NVFP4": _FP4,
    "FP8": WeightForm(codes=_FP8, outputs=0, activations="float8:tensor"),
    "FP8_PER_CHANNEL_PER_TOKEN": WeightForm(codes=_FP8, activations="float8:token"),
    "FP8_PB_WO": WeightForm(codes=_FP8, outputs=128, inputs=128),
    "MXFP8": WeightForm(codes=_FP8, inputs=32, scale="e8m0", activations="float8:32"),
}
"""Values of `quant_algo`, and the form of each."""


class ModelOptOptions(BaseModel):
    """Options of the method `modelopt`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    activations: Literal["checkpoint", "as_is"] = Field(
        "checkpoint", description="checkpoint: rounded as the checkpoint says; as_is: left as they are."
    )


@dataclass(frozen=True, slots=True)
class ModelOptConfig:
    """Settings of a checkpoint.

    Attributes:
        form: Of the layers that are quantized.
        plain: Modules that are not; a `*` stands for anything.
    """

    form: WeightForm
    plain: tuple[str, ...]

    @staticmethod
    def read(given: Mapping[str, object]) -> ModelOptConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        if reasons := reasons_against(given):
            raise contradicted("; ".join(reasons), f"Supported are {', '.join(ALGORITHMS)}.")
        return ModelOptConfig(ALGORITHMS[_algorithm(given)], listed(given, "exclude_modules", "ignore"))

    def quantizes(self, site: LayerSite, part: str) -> bool:
        """Whether this part of a layer is quantized."""
        return site.inner and not names_module(self.plain, site.module(part))


def contradicted(how: str, hint: str = "The weights and their description do not belong together.") -> CheckpointError:
    """Return the error of a checkpoint that is not what it says of itself: CORE-M160."""
    return CheckpointError("CORE-M160", f"this ModelOpt checkpoint cannot be read: {how}.", hint=hint)


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse other algorithms while methods are chosen."""
    return Verdict.of(*reasons_against(request.checkpoint))


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the form of codes and the plain one, each with the number of its matrices."""
    form = ModelOptConfig.read(checkpoint.quantization_config).form
    matrices = [name for name, (shape, _) in checkpoint.tensors.items() if name.endswith(".weight") and len(shape) == 2]
    codes = sum(f"{name}_scale" in checkpoint.tensors for name in matrices)
    found = {form: codes, PLAIN: len(matrices) - codes}
    return {one: count for one, count in found.items() if count} or {form: 0}


def reasons_against(given: Mapping[str, object]) -> list[str]:
    """Return everything in a `quantization_config` that is not understood."""
    algorithm, size = _algorithm(given), given.get("group_size")
    if algorithm not in ALGORITHMS:
        return [f"quant_algo {given.get('quant_algo')!r:.60}"]
    due = ALGORITHMS[algorithm].inputs
    if size and due in (16, 32) and size != due:
        return [f"groups of {size!r:.60} inputs, not {due}"]
    return []


def _algorithm(given: Mapping[str, object]) -> str:
    usual = {"modelopt_fp4": "NVFP4", "modelopt_mxfp8": "MXFP8"}.get(str(given.get("quant_method")))
    return str(given.get("quant_algo", usual)).upper()
