"""How a model of the hub is written."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LONGEST = 96
_NAME = r"[A-Za-z0-9][\w.-]*"
_FILE = r"[\w-][\w.-]*(?:/[\w-][\w.-]*)*"
_WRITTEN = re.compile(rf"(?:hf:(?P<any>{_NAME}(?:/{_NAME})?)|(?P<id>{_NAME}/{_NAME}))(?::(?P<pick>{_FILE}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubReference:
    """A repository and, for one with several GGUF files, which of them.

    Attributes:
        written: As the user wrote it.
        repo: `organisation/name`, or a bare `name`.
        pick: Quantization or file name of the GGUF file that is meant.
    """

    written: str
    repo: str
    pick: str | None = None

    @property
    def name(self) -> str:
        """Name to serve the model under."""
        return f"{self.repo}:{self.pick}" if self.pick else self.repo


def parse(text: str | None) -> HubReference | None:
    """Return what `organisation/name`, `hf:NAME` or either with `:QUANTIZATION` means; None for other texts."""
    match = _WRITTEN.fullmatch(text or "")
    if match is None:
        return None
    repo = match["id"] or match["any"]
    # The hub has no such names; as folders they would lead out of the cache, or be too long.
    strange = ".." in repo or "--" in repo or len(repo) > _LONGEST
    return None if strange else HubReference(match[0], repo, match["pick"])
