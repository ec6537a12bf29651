"""The one model, as Ollama describes models."""

from __future__ import annotations

import hashlib
from typing import Any

from core.api.routes import EngineClient
from core_plugin_ollama.records import moment

_FOREVER = 100 * 365 * 86400
_ABILITIES = {"complete": "completion", "tools": "tools", "thinking": "thinking", "embed": "embedding"}
_SUFFIX = ":latest"


def is_served(client: EngineClient, asked: str) -> bool:
    """Whether a client's name of a model, with or without the tag `latest`, is the served one's."""
    return asked in ("", client.model_name, client.model_name + _SUFFIX)


def listed(client: EngineClient) -> dict[str, Any]:
    """Return the model's entry in `/api/tags`."""
    return {**_common(client), "modified_at": moment(client.created)}


def running(client: EngineClient) -> dict[str, Any]:
    """Return the model's entry in `/api/ps`; it stays as long as the server."""
    ends = moment(client.created + _FOREVER)
    return {**_common(client), "expires_at": ends, "size_vram": 0, "context_length": client.max_model_len}


def described(client: EngineClient) -> dict[str, Any]:
    """Return the answer of `/api/show`."""
    family = _family(client)
    template = getattr(client.tokenizer, "chat_template", None)
    return {
        "modelfile": f"FROM {client.model_name}\n",
        "parameters": "",
        "template": template if isinstance(template, str) else "",
        "details": _details(client),
        "model_info": {
            "general.architecture": family,
            "general.basename": client.model_name,
            f"{family}.context_length": client.max_model_len,
            f"{family}.vocab_size": client.tokenizer.vocab_size,
        },
        "capabilities": [name for ability, name in _ABILITIES.items() if ability in client.abilities],
        "modified_at": moment(client.created),
    }


def _common(client: EngineClient) -> dict[str, Any]:
    name = client.model_name
    return {
        "name": name,
        "model": name,
        "size": client.facts.get("num_bytes", 0),
        "digest": hashlib.sha256(name.encode()).hexdigest(),  # of the name: files are not hashed for this
        "details": _details(client),
    }


def _details(client: EngineClient) -> dict[str, Any]:
    facts, family = client.facts, _family(client)
    stored = facts.get("quantization", "none")
    return {
        "parent_model": "",
        "format": facts.get("format", ""),
        "family": family,
        "families": [family],
        "parameter_size": "",
        "quantization_level": facts.get("dtype", "") if stored == "none" else stored,
    }


def _family(client: EngineClient) -> str:
    return str(client.facts.get("architecture", "unknown")).partition("For")[0].lower()
