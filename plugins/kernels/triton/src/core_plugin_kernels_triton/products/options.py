"""Options of the products. Torch-free."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ProductOptions(BaseModel):
    """Options of `triton_linear` and `triton_stored_lookup`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_invariant: bool = Field(
        False,
        description="Whether products give a token the same numbers whatever is computed with it; prompts take longer.",
    )
