"""A model in this process as a source of answers for `core chat --local` and `core complete --local`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core import LLM, RequestOutput, SamplingParams
from core.cli.client import Delta

_DEFAULT_MAX_TOKENS = 512


class LocalModel:
    """Runs the engine in this process; the answer comes in one piece."""

    def __init__(self, model: str) -> None:
        self._llm = LLM(model)

    def chat(self, messages: list[dict[str, str]], params: dict[str, Any]) -> Iterator[Delta]:
        """Answer a conversation."""
        yield _delta(self._llm.chat(messages, _params(params)))

    def complete(self, prompt: str, params: dict[str, Any]) -> Iterator[Delta]:
        """Continue a text."""
        yield _delta(self._llm.generate([prompt], _params(params)))

    def close(self) -> None:
        """Release the engine."""
        self._llm.close()


def _params(params: dict[str, Any]) -> SamplingParams:
    return SamplingParams(**{"max_tokens": _DEFAULT_MAX_TOKENS, **params})


def _delta(outputs: list[RequestOutput]) -> Delta:
    completion = outputs[0].outputs[0]
    return Delta(completion.text, len(completion.token_ids))
