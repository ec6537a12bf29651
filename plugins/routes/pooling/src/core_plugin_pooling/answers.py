"""Answers as bytes. They are written beside the event loop: vectors are many numbers."""

from __future__ import annotations

from typing import Any

import orjson

from core.api import Usage


def as_json(value: Any) -> bytes:
    """Return an answer as JSON; numpy arrays become lists."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def spent(usage: Usage) -> dict[str, int]:
    """Return the usage of a request that generates nothing."""
    return {"prompt_tokens": usage.prompt, "total_tokens": usage.prompt, "completion_tokens": 0}
