"""Options of this distribution's plugins, and a check of the checkpoints that they read. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from core.api import ProbeResult, QuantRequest, Verdict


class Int8Options(BaseModel):
    """Options of `--quantization int8`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    activations: Literal[8, 16] = Field(8, description="Bits of activations: 8 rounds them per token, 16 leaves them.")


class Int4Options(BaseModel):
    """Options of `--quantization int4`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group_size: Literal[32, 64, 128] = Field(
        128, description="Inputs that share a scale; 32 do where a layer's inputs are no whole groups."
    )
    zero_points: bool = Field(
        True, description="Whether each group has a zero point; without, codes are symmetric about 0."
    )


def decodable(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse checkpoints whose tensors their reader cannot decode: `int8` and `int4` round values."""
    found = cast("Mapping[str, str]", request.checkpoint.get("undecodable", {}))
    return Verdict.of(*(f"{tensor} has type {kind}, which is not decoded" for kind, tensor in found.items()))
