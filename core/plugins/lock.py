"""Lock files: a start's plugins written down, to be held against later starts and other machines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from core.api.errors import PluginError
from core.api.installed import FILE_PREFIX
from core.plugins.catalog import Catalogue
from core.plugins.code import code_digest, code_digests
from core.plugins.kinds import kind_of
from core.plugins.known import normalise
from core.plugins.plan import PlannedFile, PlannedPlugin, PluginPlan
from core.version import __version__

_SHORT = 12


class LockedPlugin(BaseModel):
    """One plugin of the plan. Its options stand here as a hash only: they may hold secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str
    name: str
    dist: str
    version: str
    value: str
    api: int
    options_sha256: str

    @property
    def title(self) -> str:
        """Kind and name, as differences call it."""
        return f"{kind_of(self.group).label} '{self.name}'"


class Lock(BaseModel):
    """Content of a lock file.

    Attributes:
        core: Version of core.
        digest: SHA-256 of the plan.
        model: The model reference that the plugins were chosen for; empty: the default model.
        distributions: Version of every distribution that takes part.
        code: Digest of the code of each of them, and of core's; empty in files of a core that did not write it.
        plugins: Drivers, then hook modules, in the plan's order.
        files: Plugin files with the hash of their bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    core: str
    digest: str
    model: str = ""
    distributions: dict[str, str]
    code: dict[str, str] = {}
    plugins: tuple[LockedPlugin, ...]
    files: tuple[PlannedFile, ...] = ()


def lock_of(plan: PluginPlan, model: str) -> Lock:
    """Return the lock of a plan that was made for a model. Raises `PluginError` CORE-P175, code cannot be read."""
    plugins = tuple(_locked(plugin) for plugin in (*plan.drivers, *plan.hooks))
    return Lock(
        core=__version__,
        digest=plan.digest,
        model=model,
        distributions={plugin.dist: plugin.version for plugin in sorted(plugins, key=lambda one: one.dist)},
        code=code_digests(["core", *(one.dist for one in plugins if not one.dist.startswith(FILE_PREFIX))]),
        plugins=plugins,
        files=plan.files,
    )


def read_lock(path: str) -> Lock:
    """Read a lock file. Raises `PluginError` CORE-P311 when it is missing or not one."""
    try:
        return Lock.model_validate_json(Path(path).read_bytes())
    except OSError as error:
        why = error.strerror or str(error)
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
    raise PluginError(
        "CORE-P311",
        f"lock file {path} cannot be read: {why}.",
        hint="Make one with `core plugins lock FILE MODEL` and the flags of the start.",
    )


def differences(lock: Lock, plan: PluginPlan, model: str) -> list[str]:
    """Return a sentence for everything in which a start's plan differs from the lock.

    Raises:
        PluginError: CORE-P175, the code of a distribution that takes part cannot be read.
    """
    here = lock_of(plan, model)
    found = [*_versions(lock, here.core), *_plugins(lock.plugins, here.plugins), *_files(lock.files, here.files)]
    found += _code(lock, {"core": here.core, **here.distributions}, here.code)
    if not found and lock.digest != here.digest:
        found.append("the plugins take part in another order")
    if found and lock.model != model:
        found.append(f"the file was locked for {_named(lock.model)}, this start is of {_named(model)}")
    return found


def installed_differences(lock: Lock, catalogue: Catalogue) -> list[str]:
    """Return a sentence for every locked plugin that is not installed here just so."""
    found = list(_versions(lock, __version__))
    for plugin in lock.plugins:
        if plugin.dist.startswith(FILE_PREFIX):
            continue  # held against its file's hash below
        entry = catalogue.exact(plugin.group, plugin.name, plugin.dist)
        if entry is None:
            found.append(f"{plugin.title} of {plugin.dist} {plugin.version} is not installed")
        elif (entry.version, entry.value) != (plugin.version, plugin.value):
            found.append(
                f"{plugin.title} of {plugin.dist} is {entry.version} ({entry.value}), "
                f"locked {plugin.version} ({plugin.value})"
            )
    for file in lock.files:
        found += _file_now(file)
    versions = {"core": __version__, **_installed(lock, catalogue)}
    return [*found, *_code(lock, versions, {name: code_digest(name) for name in lock.code if name in versions})]


def _installed(lock: Lock, catalogue: Catalogue) -> dict[str, str]:
    """Return the versions of the locked distributions that are installed here and have plugins."""
    here = {normalise(entry.dist): entry.version for entry in catalogue.every()}
    return {name: here[normalise(name)] for name in lock.distributions if normalise(name) in here}


def _code(lock: Lock, versions: Mapping[str, str], here: Mapping[str, str]) -> Iterator[str]:
    """Yield the distributions whose code is another one under the version that was locked."""
    locked = {"core": lock.core, **lock.distributions}
    for name, digest in lock.code.items():
        if name in here and here[name] != digest and versions[name] == locked[name]:
            yield (
                f"distribution {name} {versions[name]} has other code under the same version: its digest is "
                f"{here[name][:_SHORT]}..., locked {digest[:_SHORT]}..."
            )


def _named(model: str) -> str:
    return f"model '{model}'" if model else "the default model"


def _locked(plugin: PlannedPlugin) -> LockedPlugin:
    options = json.dumps(plugin.options, sort_keys=True).encode()
    fields = plugin.model_dump(exclude={"options", "reference_only"})
    return LockedPlugin(**fields, options_sha256=hashlib.sha256(options).hexdigest())


def _versions(lock: Lock, core: str) -> Iterator[str]:
    if lock.core != core:
        yield f"core is {core}, locked {lock.core}"


def _plugins(locked: tuple[LockedPlugin, ...], here: tuple[LockedPlugin, ...]) -> Iterator[str]:
    before, after = _by_key(locked), _by_key(here)
    for key, plugin in before.items():
        if key not in after:
            yield f"{plugin.title} of {plugin.dist} {plugin.version} takes no part"
        else:
            yield from _changes(plugin, after[key])
    for key, plugin in after.items():
        if key not in before:
            yield f"{plugin.title} of {plugin.dist} {plugin.version} is not locked"


def _by_key(plugins: tuple[LockedPlugin, ...]) -> Mapping[tuple[str, str, str], LockedPlugin]:
    return {(plugin.group, plugin.name, plugin.dist): plugin for plugin in plugins}


def _changes(locked: LockedPlugin, here: LockedPlugin) -> Iterator[str]:
    for field in ("version", "value", "api"):
        before, after = getattr(locked, field), getattr(here, field)
        if before != after:
            yield f"{field} of {locked.title} ({locked.dist}) is {after}, locked {before}"
    if locked.options_sha256 != here.options_sha256:
        yield f"the options of {locked.title} ({locked.dist}) differ"


def _files(locked: tuple[PlannedFile, ...], here: tuple[PlannedFile, ...]) -> Iterator[str]:
    before, after = [{file.path: file.sha256 for file in files} for files in (locked, here)]
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            yield f"plugin file {path} has SHA-256 {after.get(path, 'none')}, locked {before.get(path, 'none')}"


def _file_now(file: PlannedFile) -> list[str]:
    try:
        sha256 = hashlib.sha256(Path(file.path).read_bytes()).hexdigest()
    except OSError as error:
        return [f"plugin file {file.path} cannot be read: {error.strerror or error}"]
    return list(_files((file,), (file.model_copy(update={"sha256": sha256}),)))
