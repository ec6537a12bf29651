"""Errors of checkpoints in Hugging Face's layout."""

from __future__ import annotations

from pathlib import Path

from core.api import CheckpointError


def damaged(path: Path, why: str) -> CheckpointError:
    """A safetensors file that is cut off or corrupt."""
    hint = "The file is incomplete or corrupt; fetch it again."
    return CheckpointError("CORE-M130", f"{path}: {why}.", hint=hint)


def bad_json(path: Path, why: str) -> CheckpointError:
    """A JSON file of the checkpoint that is missing, unreadable, or lacks a key."""
    return CheckpointError("CORE-M131", f"{path}: {why}.", hint="Fetch the checkpoint again, or correct the file.")


def missing_shard(index: Path, shard: str, tensor: str) -> CheckpointError:
    """A weight file that the index names and that is not there."""
    return CheckpointError(
        "CORE-M132",
        f"{index} says that tensor '{tensor}' is in {shard}, but {index.parent} has no such file.",
        hint="The checkpoint is incomplete; fetch it again.",
    )


def no_weights(directory: Path) -> CheckpointError:
    """A directory without safetensors files."""
    pickled = sorted(path.name for path in directory.glob("*") if path.suffix in (".bin", ".pt", ".pth"))
    if pickled:
        return CheckpointError(
            "CORE-M133",
            f"{directory} holds its weights in pickled files ({pickled[0]}), which are refused because loading them "
            "runs code that they contain.",
            hint="Convert the model to safetensors, or take a version that has them.",
        )
    return CheckpointError("CORE-M134", f"{directory} holds no .safetensors files.", hint="Fetch the weights as well.")
