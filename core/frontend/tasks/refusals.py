"""Refusals of calls that the engine's task is not for."""

from __future__ import annotations

from core.api.errors import RequestError
from core.api.fronts import TaskFront

NOT_SUPPORTED = "task_not_supported"


def does_not_generate(name: str, front: TaskFront) -> RequestError:
    """Return the refusal of a generation where the engine has another task."""
    return RequestError(f"model '{name}' gives {front.gives}; it does not generate text", code=NOT_SUPPORTED)


def does_not_pool(name: str, front: TaskFront | None = None) -> RequestError:
    """Return the refusal of a pooling request where the engine has another task."""
    text = f"model '{name}' generates text; started with --runner pooling, it would give embeddings instead"
    if front is not None:
        text = f"model '{name}' gives {front.gives}; it does not pool"
    return RequestError(text, code=NOT_SUPPORTED)
