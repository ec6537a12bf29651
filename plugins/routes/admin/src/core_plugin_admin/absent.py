"""Routes that clients of other servers call and that this one cannot answer: 501, with the reason."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from core.api import RequestError
from core_plugin_admin.server import Server

_LORA = "LoRA adapters are not available in this version: serve a checkpoint with the adapter merged into it."
_SLEEP = "The engine cannot give its memory back and keep its state: stop the server and start it again."
_MEDIA = "There is no such cache: this version takes text only."

ABSENT: Mapping[str, str] = types.MappingProxyType(
    {
        "/v1/load_lora_adapter": _LORA,
        "/v1/unload_lora_adapter": _LORA,
        "/sleep": _SLEEP,
        "/wake_up": _SLEEP,
        "/reset_mm_cache": _MEDIA,
        "/reset_encoder_cache": _MEDIA,
        "/update_weight_version": "The version of the weights comes with an update: update_info.version.",
        "/update_weights_from_tensor": "Weights are read by the weight-transfer engine: use /update_weights.",
        "/update_weights_from_distributed": "Weights are read by the weight-transfer engine: use /update_weights.",
    }
)
"""Path (POST) -> why not."""


def refusal_of(path: str) -> Callable[[Server, Any], Awaitable[Mapping[str, Any]]]:
    """Return what answers a path of `ABSENT`: it refuses with 501."""

    async def absent(server: Server, asked: None) -> Mapping[str, Any]:
        raise RequestError(ABSENT[path], code="not_implemented", status=501)

    return absent


async def is_sleeping(server: Server, asked: None) -> Mapping[str, Any]:
    """Return that the engine is awake: it always is."""
    return {"is_sleeping": False}
