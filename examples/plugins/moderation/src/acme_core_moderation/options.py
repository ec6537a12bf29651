"""Options of the routes: flags, variables and keys of files."""

from __future__ import annotations

from pydantic import BaseModel, Field


class ModerationOptions(BaseModel):
    """Texts that moderators look at before the model does."""

    moderation_limit: float = Field(0.5, gt=0, le=1, description="Score from which on a text is refused.")
    moderation_texts: int = Field(100, ge=1, le=10_000, description="Texts that one request may have looked at.")
