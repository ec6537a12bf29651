"""Options of this distribution's plugins. Torch-free."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Int8Options(BaseModel):
    """What a user may set for `--quantization int8`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    activations: Literal[8, 16] = Field(8, description="Bits of activations: 8 rounds them per token, 16 leaves them.")
    head: bool = Field(False, description="Whether the output projection and the embedding are rounded, too.")
