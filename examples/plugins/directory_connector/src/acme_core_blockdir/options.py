"""Options of the connector."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ByteSize, ConfigDict, Field


class BlockdirOptions(BaseModel):
    """What a user may set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path = Field(description="Directory of the block files; made if it is missing.")
    capacity: ByteSize = Field(ByteSize(2**30), gt=0, description="Most bytes of block files: 4GiB, 512MiB or bytes.")
