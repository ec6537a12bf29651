"""Models on this machine, as commands of plugins meet them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.api.errors import CoreError
from core.api.given_options import GivenOptions
from core.api.sources import StoredModel
from core.api.weights import ModelFiles
from core.cli.host.options import loaded_of
from core.cli.host.sizes import sizes_of
from core.config.load import load_options
from core.config.resolved import Options
from core.plugins.drivers import Candidate
from core.plugins.hooks import Hooks
from core.selection.checkpoints import find_files
from core.selection.scope import open_scope
from core.selection.select import Selector
from core.selection.stores import Kept, access_of, kept_models, kept_weights


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that is kept; `KeptModel`."""

    kept: Kept

    @property
    def model(self) -> StoredModel:
        """Description by its source."""
        return self.kept.model

    @property
    def source(self) -> str:
        """Name of the plugin that keeps it."""
        return self.kept.entry.name

    @property
    def removable(self) -> bool:
        """Whether that can take it away."""
        return self.kept.removable

    def remove(self) -> int:
        """Take it away and return the bytes freed."""
        return self.kept.remove()


class AllModels:
    """Models on this machine; `LocalModels`."""

    def kept(self, options: GivenOptions, failed: Callable[[CoreError], None]) -> list[LocalModel]:
        """Return what every model source and weight store has."""
        given = loaded_of(options).options
        selector = _selector(given)
        found = [*kept_models(selector, access_of(given.hub), failed), *kept_weights(selector, failed)]
        return [LocalModel(one) for one in found]

    def fetch(self, options: GivenOptions, reference: str) -> ModelFiles:
        """Fetch a model, if it is not here, and return where it is."""
        from core.cli.interruptible import interruptible
        from core.terminal.progress import WeightProgress

        given = loaded_of(options).options
        selector = _selector(given)
        with WeightProgress(what="fetching") as progress:
            access = access_of(given.hub, progress.update)
            source, revision = given.select.model_source, given.model.revision
            return interruptible(lambda: find_files(selector, source, reference, revision, access))[1]

    def find(self, options: GivenOptions, reference: str | None) -> ModelFiles:
        """Return where a model is, without a network."""
        given = loaded_of(options).options
        return _found(_selector(given), given, reference)[1]

    def describe(self, options: GivenOptions, reference: str | None) -> dict[str, Any]:
        """Return what a start would make of a model that is here."""
        from core.cli.host.facts import facts_of

        given = loaded_of(options).options
        selector = _selector(given)
        return facts_of(selector, given.select, *_found(selector, given, reference))

    def sizes(self, path: str) -> dict[str, int]:
        """Return name -> bytes of a model's files."""
        return sizes_of(Path(path))

    def complete(self, prefix: str, **_: Any) -> list[str]:
        """Return the models that are here, as `core ls` lists them, and files."""
        from argcomplete.completers import FilesCompleter

        options = load_options(argparse.Namespace()).options
        kept = kept_models(_selector(options), access_of(options.hub), lambda error: None)
        return [*sorted({one.model.reference for one in kept}), *FilesCompleter()(prefix)]


def _selector(options: Options) -> Selector:
    """Return what chooses among the plugins that the options allow. Raises `CoreError`."""
    return Selector(open_scope(options.select)[0], Hooks(), options=options.runtime.plugin_options)


def _found(selector: Selector, options: Options, reference: str | None) -> tuple[Candidate, ModelFiles]:
    access = replace(access_of(options.hub), offline=True)
    return find_files(selector, options.select.model_source, reference, options.model.revision, access)
