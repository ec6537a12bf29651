"""Base of the sections of options."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class OptionsSection(BaseModel):
    """A section: frozen, and without names that nobody declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")
