"""Options of every platform of an accelerator."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
"""Rows of the steps that are captured while the engine starts: a step runs with the smallest that holds it."""


class AcceleratorOptions(BaseModel):
    """How the device is used."""

    model_config = ConfigDict(extra="forbid")

    graphs: bool = Field(True, description="Capture steps of one token a row while the engine starts, and replay them.")
    graph_sizes: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        SIZES,
        min_length=1,
        description="Rows of the captured steps, up to --max-num-seqs; a step runs with the smallest that holds it, a "
        "wider one uncaptured.",
    )
