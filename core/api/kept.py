"""Models on this machine, as a command meets them. Provisional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from core.api.errors import CoreError
    from core.api.given_options import GivenOptions
    from core.api.sources import StoredModel
    from core.api.weights import ModelFiles


class KeptModel(Protocol):
    """A model that can be served without fetching anything, or packed weights of one, and whose it is.

    Attributes:
        model: What its keeper says of it.
        source: Name of the plugin that keeps it.
        removable: Whether that can take it away.
    """

    @property
    def model(self) -> StoredModel: ...

    @property
    def source(self) -> str: ...

    @property
    def removable(self) -> bool: ...

    def remove(self) -> int:
        """Take it away and return the bytes freed. Raises `CoreError`."""
        ...


class LocalModels(Protocol):
    """Models on this machine. The options say which plugins are asked, and where they keep things."""

    def kept(self, options: GivenOptions, failed: Callable[[CoreError], None]) -> Sequence[KeptModel]:
        """Return what every model source and weight store has.

        Args:
            failed: Told why one of them cannot say; the others are asked all the same.
        """
        ...

    def fetch(self, options: GivenOptions, reference: str) -> ModelFiles:
        """Fetch a model that is not here, showing progress, and return where it is. Raises `CoreError`."""
        ...

    def find(self, options: GivenOptions, reference: str | None) -> ModelFiles:
        """Return where a model is, without a network.

        Args:
            reference: None: the default model.

        Raises:
            CoreError: It is not here.
        """
        ...

    def describe(self, options: GivenOptions, reference: str | None) -> Mapping[str, Any]:
        """Return what a start would make of a model that is here, by name: architecture, who implements it, size, ....

        The last are `files`, name -> bytes. What is not known is None. No weights are read.

        Raises:
            CoreError: It is not here, or no plugin reads it.
        """
        ...

    def sizes(self, path: str) -> Mapping[str, int]:
        """Return name -> bytes of a model's files: those of a directory, or a file with its other parts."""
        ...

    def complete(self, prefix: str, **_: Any) -> Sequence[str]:
        """Return the models and files whose names begin so: a `completer` of argcomplete."""
        ...
