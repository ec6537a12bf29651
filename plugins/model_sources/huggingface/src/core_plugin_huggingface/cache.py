"""The hub client's cache: `models--ORG--NAME/{refs,snapshots,blobs}`. Nothing here uses the network."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from core.api import CheckpointError, StoredModel
from core_plugin_huggingface.choice import choose, ggufs, has_weights
from core_plugin_huggingface.faults import cannot_remove, incomplete, no_room, offline
from core_plugin_huggingface.files import INDEX, read_json
from core_plugin_huggingface.reference import HubReference

MAIN = "main"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FOLDER = re.compile(r"\w+", re.ASCII)
_PREFIX = "models--"


class HubCache:
    """One cache folder.

    Args:
        folder: None takes that of the hub's client (HF_HUB_CACHE, HF_HOME).
    """

    def __init__(self, folder: str | None = None) -> None:
        from huggingface_hub import constants

        self.folder = Path(folder or constants.HF_HUB_CACHE).expanduser().absolute()

    def repository(self, repo: str) -> Path:
        """Return the folder of a repository."""
        return self.folder / (_PREFIX + repo.replace("/", "--"))

    def snapshot(self, repo: str, revision: str | None) -> Path | None:
        """Return the files of a revision as far as they are here, or None."""
        repository = self.repository(repo)
        commit = revision or MAIN
        if not _COMMIT.fullmatch(commit):
            commit = _ref(repository, commit)
        found = repository / "snapshots" / commit
        return found if commit and found.is_dir() else None

    def model(self, wanted: HubReference, revision: str | None) -> Path:
        """Return the cached model: a GGUF file, or a directory in which nothing is missing.

        Raises:
            CheckpointError: CORE-M170 it is not here, CORE-M174 not all of it is, or what `choose` raises.
        """
        snapshot = self.snapshot(wanted.repo, revision)
        if snapshot is None:
            at = f" at revision '{revision}'" if revision else ""
            raise offline(wanted, f"is not in the local cache ({self.folder}){at}")
        return _model(wanted, snapshot)

    def keep_ref(self, repo: str, revision: str | None, commit: str) -> None:
        """Write down which commit a branch or tag is, once all of its files are here.

        Raises:
            CheckpointError: CORE-M173.
        """
        if revision == commit:
            return
        path = _ref_path(self.repository(repo), revision or MAIN)
        if path is None:
            return  # no branch is called so, whatever the hub says
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".ref-")
            with os.fdopen(descriptor, "w") as file:
                file.write(commit)
            Path(name).replace(path)
        except OSError as error:
            raise no_room(self.folder, error.strerror or str(error)) from error

    def stored(self) -> Iterator[StoredModel]:
        """Yield the models that are here with all their files, one per revision, and one per GGUF model of it."""
        for repository in sorted(self.folder.glob(f"{_PREFIX}*")):
            repo = repository.name.removeprefix(_PREFIX).replace("--", "/")
            for snapshot in sorted(repository.glob("snapshots/*")):
                for wanted in _held(repo, snapshot):
                    with suppress(CheckpointError, OSError):  # a part of a download, nothing that is served, or gone
                        yield _stored(wanted, _model(wanted, snapshot), snapshot)

    def remove(self, model: StoredModel) -> int:
        """Remove a model's files, and the snapshot and repository that are empty then; return the bytes freed.

        A file that another model or revision has as well stays where it is.

        Raises:
            CheckpointError: CORE-M178, a file cannot be removed.
        """
        path = Path(model.path)
        if not path.is_relative_to(self.folder):
            raise cannot_remove(path, f"it is not in {self.folder}")
        snapshot = next(one for one in (path, *path.parents) if one.parent.name == "snapshots")
        others = [one for one in self.stored() if Path(one.path).is_relative_to(snapshot) and one.path != model.path]
        if others:
            return sum(_unlink(file, snapshot) for file in _files(path, snapshot))
        return self._remove_snapshot(snapshot)

    def _remove_snapshot(self, snapshot: Path) -> int:
        from huggingface_hub import scan_cache_dir

        try:
            found = scan_cache_dir(self.folder)
            # The client looks for the commit alone, which copies and former names of a repository have as well.
            repository = snapshot.parents[1].resolve()
            own = frozenset(one for one in found.repos if one.repo_path.resolve() == repository)
            plan = replace(found, repos=own).delete_revisions(snapshot.name)
            plan.execute()
        except (OSError, RuntimeError) as error:  # links that lead in circles are the latter
            raise cannot_remove(snapshot, str(error)) from error
        if snapshot.exists():  # the client tells in its log alone
            raise cannot_remove(snapshot, "the hub's client failed to")
        return plan.expected_freed_size


def files_of(snapshot: Path) -> list[str]:
    """Return the names of a snapshot's files as the repository has them; broken links are not there."""
    return sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file())


def _ref(repository: Path, revision: str) -> str:
    path = _ref_path(repository, revision)
    try:
        commit = path.read_text().strip() if path is not None else ""
    except (OSError, UnicodeDecodeError):
        return ""
    return commit if _FOLDER.fullmatch(commit) else ""


def _ref_path(repository: Path, revision: str) -> Path | None:
    """Return where the commit of a branch or tag is written down; None for a name that leads elsewhere."""
    refs = repository / "refs"
    path = refs / revision
    return path if ".." not in path.parts and path.is_relative_to(refs) and path != refs else None


def _model(wanted: HubReference, snapshot: Path) -> Path:
    names = files_of(snapshot)
    if not has_weights(names):
        raise incomplete(wanted, "the file with the weights")
    choice = choose(names, wanted)
    if choice.model is not None:
        return snapshot / choice.model
    lost = _lost(snapshot, names)
    if lost is not None:
        raise incomplete(wanted, lost)
    return snapshot


def _lost(snapshot: Path, names: list[str]) -> str | None:
    """Return a file that a checkpoint in safetensors files lacks, or None."""
    needed = ["config.json"]
    if INDEX in names:
        places = read_json(snapshot / INDEX).get("weight_map")
        needed += [str(name) for name in places.values()] if isinstance(places, dict) else []
    return next((name for name in needed if name not in names), None)


def _held(repo: str, snapshot: Path) -> list[HubReference]:
    """Return what could be asked of a snapshot: the repository, and each of its GGUF models."""
    written = repo if "/" in repo else f"hf:{repo}"
    whole = [HubReference(written, repo)] if any(snapshot.glob("*.safetensors")) else []
    return [*whole, *(HubReference(f"{written}:{label}", repo, label) for label in ggufs(files_of(snapshot)))]


def _stored(wanted: HubReference, path: Path, snapshot: Path) -> StoredModel:
    # Equal files are one blob.
    facts = [file.stat() for file in {one.resolve() for one in _files(path, snapshot)}]
    return StoredModel(
        reference=wanted.written,
        path=str(path),
        revision=snapshot.name,
        num_bytes=sum(one.st_size for one in facts),
        used=max(max(one.st_atime, one.st_mtime) for one in facts),
    )


def _files(model: Path, snapshot: Path) -> list[Path]:
    """Return a model's own files: a GGUF file with its other parts, or all of a snapshot but the GGUF models."""
    names = files_of(snapshot)
    groups = [[snapshot / name for name in parts] for parts in ggufs(names).values()]
    if model != snapshot:
        return next(parts for parts in groups if model in parts)
    held = {file for parts in groups for file in parts}
    return [snapshot / name for name in names if snapshot / name not in held]


def _unlink(link: Path, snapshot: Path) -> int:
    """Remove a snapshot's file and its blob, if no other revision has it; return the bytes freed."""
    blob, repository = link.resolve(), snapshot.parents[1]
    size = blob.stat().st_size
    try:
        link.unlink()
        shared = any(other.is_symlink() and other.resolve() == blob for other in repository.glob("snapshots/**/*"))
        if blob != link and not shared and blob.is_relative_to(repository.resolve()):
            blob.unlink()
    except (OSError, RuntimeError) as error:
        raise cannot_remove(link, getattr(error, "strerror", None) or str(error)) from error
    return 0 if shared else size
