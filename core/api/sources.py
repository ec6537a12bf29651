"""Optional parts of model sources: access to the network, and models that are kept on this machine.

Every protocol here is optional; a source that has none of them only finds what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True, slots=True)
class Access:
    """How a source may reach what is not on this machine.

    Attributes:
        token: Secret of the user's account; True: the one that the source's own login stored, which must exist; False:
            none; None: whatever the source does by itself. Never to be shown, logged or passed on.
        offline: Whether the network must not be used.
        folder: Where to keep what is fetched; None: the source's own place.
        progress: Called with the bytes that are here and the bytes that are due, from any thread.
    """

    token: str | bool | None = field(default=None, repr=False)
    offline: bool = False
    folder: str | None = None
    progress: Callable[[int, int], None] | None = None


class StoredModel(BaseModel):
    """A model that can be served without fetching anything.

    Attributes:
        reference: What to write for MODEL.
        path: The file or directory.
        revision: Commit or version, if the source has one.
        num_bytes: Size of its files.
        used: When it was last read, in seconds since 1970, if that is known.
    """

    model_config = ConfigDict(frozen=True)

    reference: str
    path: str
    revision: str | None = None
    num_bytes: int = 0
    used: float | None = None


@runtime_checkable
class ReachesOut(Protocol):
    """A source that fetches models."""

    def use(self, access: Access) -> None:
        """Take over how to reach them; called once, before anything else."""
        ...


@runtime_checkable
class KeepsModels(Protocol):
    """A source that knows which of its models are on this machine."""

    def stored(self) -> Iterable[StoredModel]:
        """Return them, in any order, without using the network."""
        ...


@runtime_checkable
class RemovesModels(Protocol):
    """A source that keeps models in a place of its own, from which it can take them away."""

    def remove(self, model: StoredModel) -> int:
        """Remove a model that `stored` returned, and nothing that another one needs; return the bytes that are freed.

        Raises:
            CheckpointError: It cannot be removed.
        """
        ...
