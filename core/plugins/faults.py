"""Faults: failures of a plugin's object that the caller goes on beside. They are attributed, counted and warned about.

Whoever calls the object owns the `try`, so that a call that does not fail costs nothing more.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any

from core.plugins.drivers import describe
from core.plugins.kinds import kind_of
from core.plugins.plan import PlannedPlugin

logger = logging.getLogger(__name__)

LIMIT = 3
"""Faults within `WINDOW` after which an object that can be done without is switched off."""

WINDOW = 600.0
"""Seconds."""


class Faults:
    """A fault in one plugin's object.

    Args:
        planned: Whose object it is.
        instead: What happens instead of what it should have done, for the warning.
        optional: The object is switched off after repeated faults.

    Attributes:
        count: Faults so far.
        last: The latest: what was called, and the innermost cause.
        off: Whether the object is asked no more.
    """

    def __init__(self, planned: PlannedPlugin, instead: str, *, optional: bool = False) -> None:
        self.planned, self.instead = planned, instead
        self.count, self.last, self.off = 0, "", False
        self._optional = optional
        self._recent: deque[float] = deque(maxlen=LIMIT)

    @property
    def owner(self) -> str:
        """Kind, name, distribution and version of the plugin."""
        return f"{kind_of(self.planned.group).label} {self.planned.owner}"

    def raised(self, what: str, error: BaseException) -> None:
        """Account for a call that raised."""
        self.note(f"{what} raised {describe(error)}")

    def note(self, text: str, *, fatal: bool = False) -> None:
        """Account for a fault, and warn of the first ones and then of ever fewer.

        Args:
            fatal: The object is switched off at once.
        """
        self.count, self.last = self.count + 1, text
        now = time.monotonic()
        self._recent.append(now)
        repeated = len(self._recent) == LIMIT and now - self._recent[0] <= WINDOW
        if not self.off and (fatal or (self._optional and repeated)):
            self.off = True
            logger.error("CORE-P162 %s is switched off until the next start: %s.", self.owner, text)
        elif self.count & (self.count - 1) == 0:
            logger.warning("CORE-P161 %s: %s; %s (fault %d).", self.owner, text, self.instead, self.count)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        plugin = self.planned
        named = {"group": plugin.group, "name": plugin.name, "distribution": plugin.dist, "version": plugin.version}
        return {**named, "faults": self.count, "last": self.last, "switched_off": self.off}
