"""The plugins that a start would choose among the installed ones, and why. Provisional."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core.api.errors import CoreError
    from core.api.installed import InstalledPlugin
    from core.api.patches import Problem


@dataclass(frozen=True, slots=True)
class ConsideredPlugin:
    """A plugin that could have been chosen.

    Attributes:
        name: What users call it.
        dist: Its distribution.
        version: Version of that.
        state: `chosen`; `ok`, it could serve; `rejected`; `absent`, it is for a library that is not here; `failed`.
        score: Its rank when core chooses; None if it cannot be used.
        reasons: Everything that speaks against it.
        code: Error code of one that failed or is absent.
    """

    name: str
    dist: str
    version: str
    state: Literal["chosen", "ok", "rejected", "absent", "failed"]
    score: int | None = None
    reasons: tuple[str, ...] = ()
    code: str = ""


@dataclass(frozen=True, slots=True)
class PluginSelection:
    """How one plugin, or none, came to be chosen.

    Attributes:
        group: The kind that was chosen among.
        subject: What it was chosen for (`head_dim 64, bfloat16`); empty where there is nothing to say.
        asked: What the user asked for; None when core chose.
        how: How it was found, as a phrase.
        considered: Everything that could have been chosen.
        notes: What else is to be said.
        error: Why there is none.
    """

    group: str
    subject: str = ""
    asked: str | None = None
    how: str = ""
    considered: tuple[ConsideredPlugin, ...] = ()
    notes: tuple[str, ...] = ()
    error: CoreError | None = None


class StartChoice(Protocol):
    """The choices of a start for a model, and why. Nothing is started, and no weights are read.

    Attributes:
        selections: How each plugin came to be chosen, in order; also what was decided before an error.
        plugins: What takes part, in order: drivers, then hook modules.
        model: Name of the model.
        architecture: Its architecture, as the checkpoint says it.
        dtype: What it is computed in.
        digest: SHA-256 of the plan, hexadecimal: equal plans are replayed alike.
        changes: What hook modules changed of the options, in words.
        warnings: What the user should know, also before an error.
        error: Why there would be no start; then there are `selections` and `warnings`, and nothing else.
    """

    @property
    def selections(self) -> Sequence[PluginSelection]: ...

    @property
    def plugins(self) -> Sequence[InstalledPlugin]: ...

    @property
    def model(self) -> str: ...

    @property
    def architecture(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def digest(self) -> str: ...

    @property
    def changes(self) -> Sequence[str]: ...

    @property
    def warnings(self) -> Sequence[Problem]: ...

    @property
    def error(self) -> CoreError | None: ...

    def lock(self) -> Mapping[str, Any]:
        """Return what a lock file holds of it, which `--plugins-lock` takes as JSON.

        Raises:
            CoreError: `error`; CORE-P175, the code of a distribution that takes part cannot be read.
        """
        ...
