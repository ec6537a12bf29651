"""Options of every platform of an accelerator."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
"""Rows of the steps that are captured while the engine starts: a step runs with the smallest that holds it."""


TOKENS = (16, 32, 64, 128, 256, 512)
"""Tokens of the steps with prompts that are captured with `--graphs full`."""

Size = Annotated[int, Field(ge=1, le=4096)]


class AcceleratorOptions(BaseModel):
    """How the device is used."""

    model_config = ConfigDict(extra="forbid")

    graph_sizes: tuple[Size, ...] = Field(
        SIZES,
        min_length=1,
        description="Rows of the captured steps of one token a row, up to --max-num-seqs; a step runs with the "
        "smallest that holds it, a wider one uncaptured.",
    )
    graph_tokens: tuple[Size, ...] = Field(
        TOKENS,
        description="Tokens of the captured steps with prompts, of --graphs full; a step runs with the smallest that "
        "holds it, a larger one uncaptured.",
    )
