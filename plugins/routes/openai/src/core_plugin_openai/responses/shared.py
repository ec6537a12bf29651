"""What the routes of responses share."""

from __future__ import annotations

from dataclasses import dataclass

from core.api import EngineClient
from core_plugin_openai.responses.store import ResponseStore


@dataclass(frozen=True, slots=True)
class Shared:
    """The engine, and the responses that are kept."""

    client: EngineClient
    store: ResponseStore
