"""The errors that a GGUF file can cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path


def unsupported(path: Path, what: str, hint: str = "", *, architecture: str = "") -> CheckpointError:
    """CORE-M140: a sound file of a model that cannot be described to a model plugin."""
    return CheckpointError("CORE-M140", f"{path}: {what}.", hint=hint, architecture=architecture)


def damaged(path: Path, what: str) -> CheckpointError:
    """CORE-M141: the file is not GGUF, is cut short, or contradicts itself."""
    return CheckpointError("CORE-M141", f"{path} cannot be read as GGUF: {what}.", hint="Download or convert it again.")


def bad_tensor_type(path: Path, tensor: str, kind: str) -> CheckpointError:
    """CORE-M142: a tensor is stored in a form that cannot be decoded."""
    return CheckpointError(
        "CORE-M142",
        f"{path}: tensor {tensor} has type {kind}, which cannot be decoded.",
        hint="Use another quantization of the model, for example Q4_K_M or Q8_0.",
    )


def bad_tokenizer(path: Path, why: str) -> CheckpointError:
    """CORE-M143: no tokenizer can be built from the file's vocabulary."""
    return CheckpointError(
        "CORE-M143",
        f"{path}: no tokenizer can be built: {why}.",
        hint="Convert the model again with a current converter.",
    )
