"""Server-sent events as both APIs have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def event(value: Mapping[str, Any]) -> bytes:
    """Return a value as an event of a stream."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"
