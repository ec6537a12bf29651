"""Parts that the commands share: the options that they take, and how they say that a part of the answer is missing."""

from __future__ import annotations

import sys

from core.api import CoreError

CACHE = ("hub.download_dir",)
"""Options of a command that looks at what is here."""

WHICH = ("model.revision", "select.model_source", *CACHE)
"""Options that say which model is meant."""

FETCH = ("hub.hf_token", "hub.offline", *WHICH)
"""Options of a command that may ask the hub."""


def tell(error: CoreError) -> None:
    """Print why a part of the answer is missing."""
    print(f"core: {error}", file=sys.stderr)
