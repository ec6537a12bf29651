"""What may be said of this distribution's plugins before torch is imported: their options, and what they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from core.api import ProbeResult, QuantRequest, Verdict


class Int8Options(BaseModel):
    """What a user may set for `--quantization int8`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    activations: Literal[8, 16] = Field(8, description="Bits of activations: 8 rounds them per token, 16 leaves them.")


def decodable(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse checkpoints whose tensors their reader cannot decode: `int8` rounds values."""
    found = cast("Mapping[str, str]", request.checkpoint.get("undecodable", {}))
    return Verdict.of(*(f"{tensor} has type {kind}, which is not decoded" for kind, tensor in found.items()))
