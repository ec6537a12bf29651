"""Models that are on this machine, as model sources tell, packed weights that stores keep, and taking them away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from core.api.errors import CoreError
from core.api.sources import Access, KeepsModels, RemovesModels, StoredModel
from core.api.weights import KeptWeights, WeightStore
from core.options.model import HubOptions
from core.plugins.drivers import guarded, load_descriptors, typed
from core.plugins.entry import Entry
from core.plugins.kinds import SOURCE, WEIGHT_STORE
from core.selection.checkpoints import opened
from core.selection.select import Selector

PACKED = ":packed"
"""Suffix of a model's name where its packed weights are meant."""

_TOKENS: dict[str, bool] = {"true": True, "false": False}


def access_of(hub: HubOptions, progress: Callable[[int, int], None] | None = None) -> Access:
    """Return what the options say of reaching models."""
    token = None if hub.hf_token is None else _TOKENS.get(hub.hf_token.lower(), hub.hf_token)
    return Access(token=token, offline=hub.offline, folder=hub.download_dir, progress=progress)


@dataclass(frozen=True, slots=True)
class Kept:
    """A stored model and whose it is.

    Attributes:
        source: The source as an object.
    """

    entry: Entry
    source: Any
    model: StoredModel

    @property
    def removable(self) -> bool:
        """Whether the source can take it away."""
        return isinstance(self.source, RemovesModels)

    def remove(self) -> int:
        """Take it away and return the bytes freed. Raises `CoreError`."""
        return int(guarded(self.entry, "remove()", self.source.remove, self.model))


def kept_models(selector: Selector, access: Access, failed: Callable[[CoreError], None]) -> Iterator[Kept]:
    """Yield what every model source has on this machine.

    Args:
        failed: Told why a source cannot say; the others are asked all the same.
    """
    candidates, failures = load_descriptors(selector.catalogue.entries(SOURCE.group))
    for failure in failures:
        failed(failure.error())
    for candidate in candidates:
        entry = candidate.entry
        try:
            source = opened(selector, candidate, access)
            for model in guarded(entry, "stored()", _listed, source):
                yield Kept(entry, source, typed(entry, "stored()", model, StoredModel))
        except CoreError as error:
            failed(error)


class PackedWeights:
    """A weight store as a source of models: what it keeps is a form of one, and its revision is the key."""

    def __init__(self, store: WeightStore) -> None:
        self._store = store

    def stored(self) -> Iterable[object]:
        """Return what is kept; what is no `KeptWeights` as it is."""
        return [_as_model(kept) if isinstance(kept, KeptWeights) else kept for kept in self._store.entries()]

    def remove(self, model: StoredModel) -> int:
        """Remove what is kept; return the bytes freed."""
        return int(self._store.remove(model.revision or ""))


def kept_weights(selector: Selector, failed: Callable[[CoreError], None]) -> Iterator[Kept]:
    """Yield the packed weights that every installed store keeps, with the options that it is given.

    Args:
        failed: As of `kept_models`.
    """
    candidates, failures = load_descriptors(selector.catalogue.entries(WEIGHT_STORE.group))
    for failure in failures:
        failed(failure.error())
    for candidate in candidates:
        entry = candidate.entry
        try:
            store = PackedWeights(selector.made(candidate))
            for model in guarded(entry, "entries()", store.stored):
                yield Kept(entry, store, typed(entry, "entries()", model, StoredModel))
        except CoreError as error:
            failed(error)


def _as_model(kept: KeptWeights) -> StoredModel:
    name = f"{kept.model}{PACKED}"
    return StoredModel(reference=name, path=kept.path, revision=kept.key, num_bytes=kept.num_bytes, used=kept.used)


def _listed(source: object) -> Iterable[object]:
    return list(source.stored()) if isinstance(source, KeepsModels) else ()
