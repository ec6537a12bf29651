"""Options of the plugin."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class OllamaOptions(BaseModel):
    """Options of `--opt ollama.KEY=VALUE`."""

    model_config = ConfigDict(extra="forbid")

    version: str = Field(
        default="0.12.6",
        pattern=r"^\d+\.\d+\.\d+$",
        description="Version of Ollama that clients are told; some ask for a least one.",
    )
