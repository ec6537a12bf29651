"""An LLM inference and serving framework whose core contains no implementation.

Importing this package is cheap: nothing heavier than the standard library is loaded
until one of the public names below is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.version import __version__

if TYPE_CHECKING:
    from core.api.pooled import PoolingParams
    from core.api.sampling_params import SamplingParams
    from core.frontend.async_llm import AsyncLLM
    from core.frontend.beams.search import BeamSearchParams
    from core.frontend.llm import LLM
    from core.frontend.results import CompletionOutput, RequestOutput

_LAZY = {
    "AsyncLLM": "core.frontend.async_llm",
    "BeamSearchParams": "core.frontend.beams.search",
    "CompletionOutput": "core.frontend.results",
    "LLM": "core.frontend.llm",
    "PoolingParams": "core.api.pooled",
    "RequestOutput": "core.frontend.results",
    "SamplingParams": "core.api.sampling_params",
}

__all__ = [
    "LLM",
    "AsyncLLM",
    "BeamSearchParams",
    "CompletionOutput",
    "PoolingParams",
    "RequestOutput",
    "SamplingParams",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'core' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
