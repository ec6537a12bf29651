"""What an AWQ checkpoint says of itself. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.api import CheckpointError

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Output, of eight, that each nibble of a word belongs to, the lowest nibble first."""


@dataclass(frozen=True, slots=True)
class AWQConfig:
    """Settings of a checkpoint.

    Attributes:
        group_size: Inputs that share a scale; -1 for all of them.
        plain: Parts of the module paths of layers that are not quantized.
    """

    group_size: int
    plain: tuple[str, ...]

    @staticmethod
    def read(given: Mapping[str, object]) -> AWQConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        bits, size = given.get("bits", given.get("w_bit", 4)), given.get("group_size", given.get("q_group_size", 128))
        layout = str(given.get("version", "gemm")).lower()
        if bits != 4 or layout != "gemm" or not isinstance(size, int) or (size < 1 and size != -1):
            raise CheckpointError(
                "CORE-M160",
                f"AWQ weights of {bits!r} bits in layout {layout!r} with groups of {size!r} are not supported.",
                hint="Supported are 4 bits in the layout 'gemm', in groups of any size (-1: all inputs).",
            )
        listed = given.get("modules_to_not_convert") or ()
        return AWQConfig(size, tuple(str(name) for name in listed) if isinstance(listed, (list, tuple)) else ())

    def quantizes(self, prefix: str) -> bool:
        """Whether the linear layer at this path is quantized."""
        return not any(name in prefix for name in self.plain)
