"""Quantization settings of a bitsandbytes checkpoint. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core_plugin_unquantized.names import listed, names_module

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

INT8 = WeightForm(codes="int", bits=8)
"""A scale for each output. Activations are left as they are: rounding them is the library's way to its kernels."""

BLOCK = 64
"""Values that share a scale in a file that does not say otherwise."""


@dataclass(frozen=True, slots=True)
class BitsAndBytesConfig:
    """Settings of a checkpoint.

    Attributes:
        codes: `int8`, `nf4` or `fp4`.
        plain: Modules that are not quantized.
    """

    codes: str
    plain: tuple[str, ...]

    @staticmethod
    def read(given: Mapping[str, object]) -> BitsAndBytesConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        if reasons := reasons_against(given):
            raise contradicted("; ".join(reasons), "Supported are load_in_8bit, and load_in_4bit with nf4 or fp4.")
        codes = "int8" if given.get("load_in_8bit") else str(given.get("bnb_4bit_quant_type", "fp4"))
        return BitsAndBytesConfig(codes, listed(given, "llm_int8_skip_modules"))

    def form(self, in_features: int) -> WeightForm:
        """Return the form of a layer's codes: blocks of values that cross the ends of rows are nobody else's."""
        if self.codes == "int8":
            return INT8
        if in_features % BLOCK == 0:
            return WeightForm(codes=self.codes, inputs=BLOCK)
        return WeightForm(codes=f"bitsandbytes:{self.codes}")

    def quantizes(self, site: LayerSite, part: str) -> bool:
        """Whether this part of a layer is quantized."""
        return site.inner and not names_module(self.plain, site.module(part))


def contradicted(how: str, hint: str = "The weights and config.json do not belong together.") -> CheckpointError:
    """Return the error of a checkpoint that is not what it says of itself: CORE-M160."""
    return CheckpointError("CORE-M160", f"this bitsandbytes checkpoint cannot be read: {how}.", hint=hint)


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse what is not understood, while methods are chosen."""
    return Verdict.of(*reasons_against(request.checkpoint))


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the form of codes and the plain one, each with the number of its matrices."""
    config = BitsAndBytesConfig.read(checkpoint.quantization_config)
    names = checkpoint.tensors
    weights = [name for name, (shape, _) in names.items() if name.endswith(".weight") and len(shape) == 2]
    codes = sum(f"{name}.absmax" in names or f"{name.removesuffix('weight')}SCB" in names for name in weights)
    found = {config.form(BLOCK): codes, PLAIN: len(weights) - codes}
    return {one: count for one, count in found.items() if count} or {config.form(BLOCK): 0}


def reasons_against(given: Mapping[str, object]) -> list[str]:
    """Return everything in a `quantization_config` that is not understood."""
    eight, four, kind = given.get("load_in_8bit"), given.get("load_in_4bit"), given.get("bnb_4bit_quant_type", "fp4")
    reasons = (
        None if bool(eight) != bool(four) else f"load_in_8bit {eight!r:.20} and load_in_4bit {four!r:.20}",
        None if not four or kind in ("nf4", "fp4") else f"bnb_4bit_quant_type {kind!r:.60}, not 'nf4' or 'fp4'",
        "weights of another type (llm_int8_has_fp16_weight)" if given.get("llm_int8_has_fp16_weight") else None,
    )
    return [reason for reason in reasons if reason]
