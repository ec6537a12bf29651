import os
from pathlib import Path

from core.api import CheckpointError, ModelFiles

SCHEME = "vault:"


class Vault:
    """Claims `vault:NAME`, which is a file in the directory of the variable CORE_PLUGIN_VAULT."""

    def resolve(self, reference, *, revision=None):
        if reference is None or not reference.startswith(SCHEME):
            return None
        name = reference.removeprefix(SCHEME)
        path = Path(os.environ["CORE_PLUGIN_VAULT"]) / f"{name}.vault"
        if not path.exists():
            raise CheckpointError("CORE-M190", f"the vault has no model '{name}'.")
        return ModelFiles(reference=reference, path=str(path), name=name, revision=revision)
