"""Options of resumable streams: flags, variables and keys of files."""

from __future__ import annotations

from pydantic import BaseModel, Field


class ResumableOptions(BaseModel):
    """Streams that outlive a connection."""

    resume_seconds: float = Field(
        60.0, ge=0, le=3600, description="Seconds that a resumable stream lives on without its reader; 0: none are."
    )
    resume_bytes: int = Field(64 * 2**20, ge=2**16, description="Memory for the events of resumable streams.")
