"""Options of the connector."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field


class OffloadOptions(BaseModel):
    """Options of the connector `cpu_offload`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    capacity: ByteSize = Field(ByteSize(2**30), gt=0, description="Host memory for KV blocks: 4GiB, 512MiB or bytes.")
    eviction: Literal["lru", "arc"] = Field(
        "lru",
        description="Which blocks leave first: lru, those that were not used for longest; arc, which keeps blocks that "
        "were used again while long prompts pass by that are used once.",
    )
