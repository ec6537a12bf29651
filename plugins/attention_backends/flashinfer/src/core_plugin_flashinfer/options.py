"""Options of the backend. Torch-free."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class FlashInferOptions(BaseModel):
    """How the library divides its work, and what memory it has for that."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspace_mib: int = Field(
        128, ge=1, le=4096, description="Memory for the parts of contexts that are computed in splits, in MiB."
    )
    splits: bool = Field(
        True,
        description="Whether long contexts are computed in splits, which the library chooses by all rows of the step. "
        "Without, a row's numbers do not depend on the others, and few rows take longer; latent attention is refused.",
    )
