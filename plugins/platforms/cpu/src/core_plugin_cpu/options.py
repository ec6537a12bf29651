"""Options of this distribution's plugins. Torch-free."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class BlockOptions(BaseModel):
    """What a user may set for `cpu_gguf`, `cpu_awq` and `cpu_gptq`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_invariant: bool = Field(
        False,
        description="Whether products give a token the same numbers whatever is computed with it; prompts take longer.",
    )


class Int8Options(BaseModel):
    """What a user may set for `--quantization int8`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    activations: Literal[8, 16] = Field(8, description="Bits of activations: 8 rounds them per token, 16 leaves them.")
    head: bool = Field(False, description="Whether the output projection and the embedding are rounded, too.")
