"""References to the Hugging Face hub."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from core.api import Access, CheckpointError, ModelFiles, StoredModel
from core_plugin_huggingface.cache import HubCache
from core_plugin_huggingface.choice import choose
from core_plugin_huggingface.reference import HubReference, parse

_log = logging.getLogger(__name__)
_ANSWERS = ("CORE-M105", "CORE-M107", "CORE-M171", "CORE-M172")
"""Codes of errors that keep the hub from giving a model, but not core from serving a copy that is here."""


class HubSource:
    """The model source `hub`."""

    def __init__(self) -> None:
        self._access = Access()

    def use(self, access: Access) -> None:
        """Take over the token, offline mode, the folder and the progress."""
        self._access = access

    def resolve(self, reference: str | None, *, revision: str | None = None) -> ModelFiles | None:
        """Return `organisation/name` (or a GGUF file of it, see `reference`), fetching what is missing.

        None stands for any other reference. A model that is cached is served as it is where the hub cannot be reached.

        Raises:
            CheckpointError: CORE-M105 the hub cannot be reached, M107 it has no such model or revision, M133 and M134
                no weights that can be read, M170 offline, M171 gated, M172 token, M173 no room, M174 cached only in
                part, M175 which GGUF file is not clear.
        """
        wanted = parse(reference)
        if wanted is None:
            return None
        cache = HubCache(self._access.folder)
        path = cache.model(wanted, revision) if self._offline() else self._online(cache, wanted, revision)
        commit = path.relative_to(cache.repository(wanted.repo) / "snapshots").parts[0]
        return ModelFiles(reference=wanted.written, path=str(path), name=wanted.name, revision=commit)

    def stored(self) -> Iterable[StoredModel]:
        """Return the models in the cache."""
        return HubCache(self._access.folder).stored()

    def remove(self, model: StoredModel) -> int:
        """Remove a model from the cache; return the bytes that are freed."""
        return HubCache(self._access.folder).remove(model)

    def _offline(self) -> bool:
        from huggingface_hub import constants

        return self._access.offline or constants.HF_HUB_OFFLINE

    def _online(self, cache: HubCache, wanted: HubReference, revision: str | None) -> Path:
        try:
            return self._fetched(cache, wanted, revision)
        except CheckpointError as error:
            if error.code not in _ANSWERS:
                raise
            try:
                path = cache.model(wanted, revision)
            except CheckpointError:
                raise error from error.__cause__
            _log.warning("%s The copy in the cache is used.", error.message)
            return path

    def _fetched(self, cache: HubCache, wanted: HubReference, revision: str | None) -> Path:
        from core_plugin_huggingface.remote import Remote  # imports the hub's client, which is slow

        remote = Remote(wanted, cache.folder, self._access)
        listing = remote.listing(revision)
        choice = choose(listing.sizes, wanted)
        remote.fetch(listing, choice.files)
        cache.keep_ref(wanted.repo, revision, listing.commit)
        snapshot = cache.repository(wanted.repo) / "snapshots" / listing.commit
        return snapshot / choice.model if choice.model is not None else snapshot
