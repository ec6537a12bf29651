"""Options of the participant."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class RoutedExpertsOptions(BaseModel):
    """Options of the participant: returning experts, and counting their tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    always: bool = Field(False, description="Return the experts of every request that does not say otherwise.")
    load: bool = Field(True, description="Count how many tokens each expert got.")
