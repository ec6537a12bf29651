"""Options of both backends. Torch-free."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class FlashAttentionOptions(BaseModel):
    """How the library divides its work."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    splits: int = Field(
        0,
        ge=0,
        le=128,
        description="Splits of the context of rows with few tokens: 0 lets the library choose by all rows of the step; "
        "with 1 a row's numbers do not depend on the others, and long contexts of few rows take longer.",
    )
