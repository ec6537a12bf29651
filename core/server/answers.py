"""Plain data as an HTTP answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

JSON = "application/json"


def json_answer(value: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Return plain data as JSON, with status 200."""
    return Response(orjson.dumps(value), headers=headers, media_type=JSON)
