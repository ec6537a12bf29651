"""Options of the plugin. Torch-free."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

LOGGER = "core.plugins.torch_compile"
"""Its messages are among those of core, which are shown from the level info on; of others only warnings are."""


class CompileOptions(BaseModel):
    """Whether, and how, models are compiled."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backend: Literal["off", "inductor", "aot_eager", "eager"] = Field(
        "off",
        description="torch.compile's backend: `inductor` makes kernels, with a compiler for the device; `eager` and "
        "`aot_eager` make none, and show whether a model can be traced.",
    )
    cache: bool = Field(True, description="Keep what was compiled in core's cache folder, for later starts.")
    measure: int = Field(
        0,
        ge=0,
        le=10_000,
        description="Steps that are computed both ways, until what compiling saves is printed. Not for models with "
        "recurrent states, whose steps cannot be repeated.",
    )
