"""Options of this distribution's plugins. Torch-free."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from core_plugin_cpu.native.asked import BY_ROW, COARSE, FINE

_FOUR_BITS = frozenset({"awq", "gptq"})
"""Methods whose linear layers have an error of which that of a head in 8 bits is a five-hundredth."""


class ProductOptions(BaseModel):
    """Options of `cpu_linear`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_invariant: bool = Field(
        False,
        description="Whether products give a token the same numbers whatever is computed with it; prompts take longer.",
    )
    activations: Literal["auto", "int8", "int16"] = Field(
        "auto",
        description="What products in integers round activations to: `int8` as llama.cpp does; `int16` 15 bits, next "
        "to exact; `auto` 15 bits, but without AMX 8 bits where several tokens are computed at once.",
    )

    @property
    def asked(self) -> int:
        """Flags for `PackedWeight.asked`."""
        rounding = {"auto": 0, "int8": COARSE, "int16": FINE}[self.activations]
        return rounding | BY_ROW if self.batch_invariant else rounding


class LookupOptions(ProductOptions):
    """Options of `cpu_lookup`."""

    head: Literal["auto", "checkpoint", "int8"] = Field(
        "auto",
        description="The output projection and the embedding, where the checkpoint has them as plain numbers: "
        "`checkpoint` keeps them, `int8` rounds them to 8 bits in blocks of 32 while they load, and tokens come "
        "faster; `auto` rounds those of AWQ and GPTQ checkpoints.",
    )

    def rounds(self, method: str) -> bool:
        """Whether plain numbers of a checkpoint that stores its weights by this method are rounded."""
        return self.head == "int8" or (self.head == "auto" and method in _FOUR_BITS)
