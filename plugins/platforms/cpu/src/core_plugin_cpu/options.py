"""Options of this distribution's plugins. Torch-free."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from core_plugin_cpu.native.asked import BY_ROW, COARSE, FINE

Head = Literal["checkpoint", "int8"]
"""How the embedding and the output projection are stored where the checkpoint has them as plain numbers."""

_HEAD = (
    "The output projection and the embedding, where the checkpoint has them as plain numbers: `checkpoint` keeps them, "
    "`int8` rounds them to 8 bits in blocks of 32 while they load, and tokens come faster."
)


class DenseOptions(BaseModel):
    """What a user may set for `cpu_dense` and `cpu_compressed_tensors`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    head: Head = Field("checkpoint", description=_HEAD)


class BlockOptions(DenseOptions):
    """What a user may set for `cpu_gguf`."""

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


class GroupOptions(BlockOptions):
    """What a user may set for `cpu_awq` and `cpu_gptq`."""

    head: Head = Field("int8", description=_HEAD)


class Int8Options(DenseOptions):
    """What a user may set for `--quantization int8`."""

    activations: Literal[8, 16] = Field(8, description="Bits of activations: 8 rounds them per token, 16 leaves them.")
