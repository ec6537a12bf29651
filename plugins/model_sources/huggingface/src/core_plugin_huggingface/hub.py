"""References to the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path

from core.api import CheckpointError, ModelFiles

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
PATTERNS = ["*.safetensors", "*.json", "*.jinja", "tokenizer*", "*.model", "merges.txt", "vocab.txt"]
"""What a checkpoint needs; pickled weights are never fetched."""
IGNORED = ["original/*", "onnx/*", "consolidated*.safetensors"]
"""Second copies of the weights that many repositories hold."""


class HubSource:
    """The model source `hub`."""

    def resolve(self, reference: str | None, *, revision: str | None = None) -> ModelFiles | None:
        """Return the cached snapshot of `organisation/name`, fetching what is missing; None for any other reference.

        Raises:
            CheckpointError: CORE-M105 the hub cannot be reached and the cache does not hold the model, CORE-M107 the
                hub refuses (no such model or revision, or no permission).
        """
        if not reference or not _HUB_ID.fullmatch(reference):
            return None
        path = _download(reference, revision)
        return ModelFiles(reference=reference, path=str(path), name=reference, revision=path.name)


def _download(model: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download  # slow to import, needed for hub ids only
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        found = snapshot_download(model, revision=revision, allow_patterns=PATTERNS, ignore_patterns=IGNORED)
    except GatedRepoError as error:
        raise _refused(model, "the hub gives it only to accounts that accepted its terms.", _LOGIN) from error
    except RevisionNotFoundError as error:
        raise _refused(
            model, f"it has no revision '{revision}'.", "Give a branch, tag or commit that exists."
        ) from error
    except RepositoryNotFoundError as error:
        raise _refused(model, "the hub has no such model, or it is private.", _LOGIN) from error
    except Exception as error:
        # The transport's own errors come from whichever HTTP library this version of the hub client is built on.
        raise _unreachable(model, error) from error
    return Path(found)


_LOGIN = "Check the spelling, or log in with an account that has access (`hf auth login`)."


def _refused(model: str, why: str, hint: str) -> CheckpointError:
    return CheckpointError("CORE-M107", f"the model '{model}' cannot be fetched: {why}", hint=hint)


def _unreachable(model: str, error: Exception) -> CheckpointError:
    first = str(error).strip().split("\n")[0]
    return CheckpointError(
        "CORE-M105",
        f"the model '{model}' is not in the local cache and cannot be fetched ({type(error).__name__}: {first}).",
        hint="Connect to the network, or give the path of a directory that holds the model.",
    )
