"""What the server asks of a generation front end. `core.frontend.AsyncLLM` is one; tests use a scripted one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from core.api.tokenizer import Tokenizer
from core.engine.messages import Stats
from core.engine.sampling import SamplingParams
from core.frontend.inputs import Prepared
from core.frontend.pausing import PauseMode
from core.frontend.results import RequestOutput

Prompt = str | dict[str, Any]
"""A text, `{"prompt": text, "add_special_tokens": False}`, or `{"prompt_token_ids": [...]}`."""


class ServedLLM(Protocol):
    """A model that generates.

    Attributes:
        model_name: Name it is served under.
        max_model_len: Longest prompt plus output, in tokens.
        stats: Latest counters and gauges of the engine.
        healthy: Whether the engine lives and moves on.
        paused: Whether new requests are held back.
        request_ids: Ids of the requests that have not ended.
    """

    @property
    def model_name(self) -> str: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def stats(self) -> Stats: ...

    @property
    def healthy(self) -> bool: ...

    @property
    def paused(self) -> bool: ...

    @property
    def request_ids(self) -> list[str]: ...

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        delta: bool = False,
    ) -> AsyncIterator[RequestOutput]:
        """Yield outputs as they come (with `delta` only what is new); closing the iterator aborts the request.

        Raises:
            RequestError: The request cannot be served as it is.
            EngineError: The engine is gone.
        """
        ...

    def render_chat(self, messages: Sequence[Mapping[str, Any]], **kwargs: Any) -> list[int]:
        """Return the prompt's token ids.

        Args:
            kwargs: `tools`, `documents`, `add_generation_prompt`, `continue_final_message`, `add_special_tokens`,
                `chat_template` (a source instead of the model's own), `truncation` (a `Truncation` and the room for
                the output), and variables of the template.

        Raises:
            RequestError: The template refuses the messages, or they are too long.
        """
        ...

    async def prepare(self, prompt: Prompt, params: SamplingParams) -> Prepared:
        """Return a request with its token ids and settled limits; nothing is sent. Raises `RequestError`."""
        ...

    async def abort(self, request_id: str) -> None:
        """End a request; its reader gets an output with finish reason `abort`. Unknown ids are ignored."""
        ...

    async def pause_generation(self, mode: PauseMode = "abort", *, clear_cache: bool = True) -> None:
        """Hold new requests back, and return once the engine rests (see `AsyncLLM`)."""
        ...

    async def resume_generation(self) -> None:
        """Let requests pass again."""
        ...

    async def dismiss_held(self) -> None:
        """End what a pause holds back, because the server ends (see `AsyncLLM`)."""
        ...

    async def call(self, method: str, *args: Any) -> Any: ...

    async def close(self) -> None: ...
