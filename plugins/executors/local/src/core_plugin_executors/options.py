"""Options of both executors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from core.config.resolved import EngineConfig


class ExecutorOptions(BaseModel):
    """What a user may set under `inproc` or `subprocess`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    worker: str = Field(
        "core_plugin_executors.workers:open_worker",
        pattern=r"^[\w.]+:\w+$",
        description="Factory `package.module:function` of the worker; other than the default in tests only.",
    )
    close_timeout: float = Field(5.0, gt=0, description="Seconds a worker process may take to end before it is killed.")


def options_of(config: EngineConfig) -> ExecutorOptions:
    """Return the options that the plan gives to the executor."""
    planned = config.plan.one("core.executors")
    return ExecutorOptions.model_validate(planned.options if planned else {})
