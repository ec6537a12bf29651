"""Options of the plugin."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class AzureOptions(BaseModel):
    """What `--opt azure.KEY=VALUE` sets."""

    model_config = ConfigDict(extra="forbid")

    deployments: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]] = Field(
        default=[], description="Names under which the model is deployed; none: its own, behind its last slash."
    )
