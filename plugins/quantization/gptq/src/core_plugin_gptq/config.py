"""What a GPTQ checkpoint says of itself. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.api import CheckpointError

BITS = (2, 3, 4, 8)


@dataclass(frozen=True, slots=True)
class GPTQConfig:
    """Settings of a checkpoint.

    Attributes:
        group_size: Inputs that share a scale; -1 for all of them.
        zero_offset: What is added to stored zero points.
        plain: Parts of the module paths of layers that are not quantized.
    """

    bits: int
    group_size: int
    zero_offset: int
    plain: tuple[str, ...]

    @staticmethod
    def read(given: Mapping[str, object]) -> GPTQConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        bits, size = given.get("bits", 4), given.get("group_size", 128)
        form = str(given.get("checkpoint_format") or "gptq")
        if (
            bits not in BITS
            or form not in ("gptq", "gptq_v2")
            or not isinstance(size, int)
            or (size < 1 and size != -1)
        ):
            raise _unsupported(f"weights of {bits!r} bits in format {form!r} with groups of {size!r}")
        if given.get("dynamic"):
            raise _unsupported("settings that differ from layer to layer ('dynamic')")
        listed = given.get("modules_to_not_convert") or ()
        plain = tuple(str(name) for name in listed) if isinstance(listed, (list, tuple)) else ()
        return GPTQConfig(int(str(bits)), size, 0 if form == "gptq_v2" else 1, plain)

    def groups(self, inputs: int) -> int:
        """Return how many groups so many inputs make."""
        return 1 if self.group_size == -1 else -(-inputs // self.group_size)

    def quantizes(self, prefix: str) -> bool:
        """Whether the linear layer at this path is quantized."""
        return not any(name in prefix for name in self.plain)


def _unsupported(what: str) -> CheckpointError:
    return CheckpointError(
        "CORE-M160",
        f"GPTQ {what} are not supported.",
        hint="Supported are 2, 3, 4 and 8 bits in the formats 'gptq' and 'gptq_v2', the same everywhere.",
    )
