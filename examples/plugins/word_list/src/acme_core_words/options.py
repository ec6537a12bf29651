"""Options of the word list."""

from __future__ import annotations

from pydantic import BaseModel, Field


class WordOptions(BaseModel):
    """`--opt words.words='["heist"]'`."""

    words: list[str] = Field(default=[], description="Words that no text may have, whatever their capitals.")
