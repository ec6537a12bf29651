"""Errors of checkpoints in Hugging Face's layout."""

from __future__ import annotations

import shlex
from pathlib import Path

from core.api import CheckpointError
from core_plugin_huggingface.reference import HubReference

PICKLED = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
"""Endings of weight files that run code when they are loaded."""


def damaged(path: Path, why: str) -> CheckpointError:
    """A safetensors file that is cut off or corrupt."""
    hint = "The file is incomplete or corrupt; fetch it again."
    return CheckpointError("CORE-M130", f"{path}: {why}.", hint=hint)


def bad_json(path: Path, why: str) -> CheckpointError:
    """A JSON file of the checkpoint that is missing, unreadable, or lacks a key."""
    return CheckpointError("CORE-M131", f"{path}: {why}.", hint="Fetch the checkpoint again, or correct the file.")


def bad_end(path: Path, token: object, vocab_size: object) -> CheckpointError:
    """A token that ends answers and that the model does not have."""
    return CheckpointError(
        "CORE-M202",
        f"{path}: 'eos_token_id' is {token!r:.40}, which is no token of a vocabulary of {vocab_size!r:.40} "
        "('vocab_size').",
        hint="Correct the file, or fetch the checkpoint again.",
    )


def missing_shard(index: Path, shard: str, tensor: str) -> CheckpointError:
    """A weight file that the index names and that is not there."""
    return CheckpointError(
        "CORE-M132",
        f"{index} says that tensor '{tensor}' is in {shard}, but {index.parent} has no such file.",
        hint="The checkpoint is incomplete; fetch it again.",
    )


_CONVERT = (
    "import pathlib, sys, torch; from safetensors.torch import save_file; "
    "[save_file({name: tensor.contiguous().clone() for name, tensor in "
    'torch.load(file, "cpu", weights_only=True).items()}, file.with_suffix(".safetensors")) '
    "for file in pathlib.Path(sys.argv[1]).glob(sys.argv[2])]"
)
"""Program that writes weights of one file into another beside it; `weights_only` runs no code of theirs."""


def no_weights(directory: Path) -> CheckpointError:
    """A directory without safetensors files."""
    pickled = sorted(path.name for path in directory.glob("*") if path.suffix in PICKLED)
    if pickled and pickled[0].startswith("consolidated"):
        return CheckpointError(
            "CORE-M133",
            f"{directory} holds its weights in {pickled[0]}, pickled and under its maker's own names of tensors.",
            hint="Take the version of the model in Hugging Face's layout, with .safetensors files.",
        )
    if pickled:
        pattern = ("pytorch_model*" if pickled[0].startswith("pytorch_model") else "*") + Path(pickled[0]).suffix
        command = shlex.join(["python", "-c", _CONVERT, str(directory), pattern])
        return CheckpointError(
            "CORE-M133",
            f"{directory} holds its weights in pickled files ({pickled[0]}), which are refused because loading them "
            "runs code that they contain.",
            hint=f"Take a version with .safetensors files, or convert it: `{command}`.",
        )
    return CheckpointError("CORE-M134", f"{directory} holds no .safetensors files.", hint="Fetch the weights as well.")


def pickled_only(wanted: HubReference) -> CheckpointError:
    """A repository whose weights are pickled."""
    return CheckpointError(
        "CORE-M133",
        f"the model '{wanted.repo}' has its weights in pickled files only, which are refused because loading them runs "
        "code that they contain.",
        hint=f"Take a version with .safetensors files, or `hf download {wanted.repo} --local-dir FOLDER` and serve "
        "FOLDER: the answer to that is the command that converts it.",
    )


def weightless(wanted: HubReference) -> CheckpointError:
    """A repository without weights."""
    text = f"the repository '{wanted.repo}' holds no .safetensors and no .gguf files."
    return CheckpointError("CORE-M134", text, hint="Check that it is a model, and --revision.")


def no_gguf(wanted: HubReference) -> CheckpointError:
    """A GGUF file was named, and there are none."""
    text = f"the model '{wanted.repo}' has no GGUF files, so that '{wanted.pick}' names nothing."
    return CheckpointError("CORE-M175", text, hint=f"Write {wanted.repo} alone.")


def several_ggufs(wanted: HubReference, labels: list[str]) -> CheckpointError:
    """Several GGUF files, and it is not clear which is meant."""
    why = f"none is called '{wanted.pick}'" if wanted.pick else "none is named"
    return CheckpointError(
        "CORE-M175",
        f"the model '{wanted.repo}' has several GGUF files and {why}: {', '.join(labels)}.",
        hint=f"Write {wanted.repo}:{labels[0]}, for example.",
    )


def unreachable(wanted: HubReference, why: str) -> CheckpointError:
    """The network or the hub does not answer."""
    return CheckpointError(
        "CORE-M105",
        f"the model '{wanted.written}' cannot be fetched: the hub cannot be reached, or fails ({why}).",
        hint="It is not in the local cache: connect to the network, or give the path of a directory that holds it.",
    )


def refused(wanted: HubReference, why: str, hint: str) -> CheckpointError:
    """The hub answers that it does not give the model."""
    return CheckpointError("CORE-M107", f"the model '{wanted.written}' cannot be fetched: {why}.", hint=hint)


def offline(wanted: HubReference, why: str) -> CheckpointError:
    """Offline, and the cache does not have it."""
    return CheckpointError(
        "CORE-M170",
        f"the model '{wanted.written}' {why}, and offline mode keeps core from asking the hub.",
        hint=f"Run `core pull {wanted.written}` with a network (without --offline and HF_HUB_OFFLINE), or give the "
        "path of a directory.",
    )


def gated(wanted: HubReference) -> CheckpointError:
    """A model whose terms have to be accepted."""
    return CheckpointError(
        "CORE-M171",
        f"the model '{wanted.written}' is gated: the hub gives it only to accounts that accepted its terms.",
        hint="Accept them on the model's page, then log in with `hf auth login`, or set HF_TOKEN.",
    )


def bad_token(why: str) -> CheckpointError:
    """No token where one is needed, or one that cannot be right."""
    return CheckpointError(
        "CORE-M172", f"{why}.", hint="Log in with `hf auth login`, or set HF_TOKEN to a token that is valid."
    )


def no_room(folder: Path, why: str) -> CheckpointError:
    """The cache cannot be written."""
    return CheckpointError(
        "CORE-M173",
        f"the model cannot be stored in {folder}: {why}.",
        hint="Make room (`core ls`, `core rm MODEL`), or name another folder with --download-dir.",
    )


def cannot_remove(path: Path, why: str) -> CheckpointError:
    """A cached model that stays."""
    text = f"{path} cannot be removed from the cache: {why}."
    return CheckpointError("CORE-M178", text, hint="Check who owns the cache's files.")


def incomplete(wanted: HubReference, file: str) -> CheckpointError:
    """A download that somebody interrupted, and nobody there to go on with it."""
    return CheckpointError(
        "CORE-M174",
        f"the cached copy of '{wanted.written}' is incomplete: {file} is missing, and the hub cannot be asked.",
        hint=f"Run `core pull {wanted.written}` with a network.",
    )
