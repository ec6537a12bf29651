"""Options of the store."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ByteSize, ConfigDict, Field


class MappedOptions(BaseModel):
    """Options of the store `mapped`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str = Field("", description="Where the files are; by default core/weights in $XDG_CACHE_HOME (~/.cache).")
    max_bytes: ByteSize | None = Field(
        None,
        gt=0,
        description="Most that all files take: 20GiB or bytes; by default 50 GiB, or a tenth of the disk that is free "
        "if that is less.",
    )

    @property
    def place(self) -> Path:
        """The folder."""
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        return (Path(self.folder) if self.folder else base / "core" / "weights").expanduser()
