"""Options of both executors."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ExecutorOptions(BaseModel):
    """Options of the executor `subprocess`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    close_timeout: float = Field(5.0, gt=0, description="Seconds a worker process may take to end before it is killed.")
