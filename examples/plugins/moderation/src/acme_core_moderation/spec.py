"""What a moderator's entry point names."""

from __future__ import annotations

from typing import ClassVar

from core.api import Descriptor


class ModeratorSpec(Descriptor):
    """A moderator. `impl` is a `Moderator`.

    Attributes:
        categories: Names of what it may object to.
    """

    group: ClassVar[str] = "acme.moderators"

    categories: tuple[str, ...]
