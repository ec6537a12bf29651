"""The caller of requests of which nobody says who sent them."""

from __future__ import annotations

from core.api.requests import Caller

NOBODY = Caller()
