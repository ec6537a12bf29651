"""Interface of the generation front end that a server needs. `AsyncLLM` is one; tests use a scripted one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from core.api.errors import EngineError
from core.api.fronts import TaskFront, Work
from core.api.io_processors import IORequest
from core.api.operator import PauseMode
from core.api.pooled import DataAnswer
from core.api.pooling import PoolingFront
from core.api.requests import Caller
from core.api.sampling import SamplingField
from core.api.tokenizer import Tokenizer
from core.config.resolved import EngineConfig
from core.engine.messages import Stats
from core.frontend.caller import NOBODY
from core.frontend.inputs import Prepared
from core.frontend.output_stream import OutputFeed
from core.frontend.prompts import PromptIds
from core.frontend.request import GenerationRequest

T = TypeVar("T")


class ServedLLM(Protocol):
    """A model that generates, or pools.

    Attributes:
        model_name: Name it is served under.
        max_model_len: Longest prompt plus output, in tokens.
        config: What the engine was started from; None where there is no engine.
        template_variables: Names that the model's chat template reads; None where nobody knows.
        template_names: The model's own chat templates, which requests may choose by name.
        grammar_kinds: Kinds of grammar that the engine knows; None where nobody knows.
        honoured: Fields of `SamplingParams` that participants of the engine carry out; None where nobody knows.
        plugin_fields: Sampling parameters that plugins of the engine declare, by name.
        pooling: What makes vectors of prompts; None if the engine has another task.
        front: The front half of the engine's task; None where it generates.
        stats: Latest counters and gauges of the engine.
        healthy: Whether the engine lives and moves on.
        failure: Why the engine is gone for good; None while it lives or is being started again.
        retry_after: Seconds after which an engine that is being started again should be ready; None if none is.
        restarts: How often the engine was started again.
        lost_weights: Version of the updated weights that went with an engine, until new ones come.
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
    def config(self) -> EngineConfig | None: ...

    @property
    def template_variables(self) -> frozenset[str] | None: ...

    @property
    def template_names(self) -> frozenset[str]: ...

    @property
    def grammar_kinds(self) -> frozenset[str] | None: ...

    @property
    def honoured(self) -> frozenset[str] | None: ...

    @property
    def plugin_fields(self) -> Mapping[str, SamplingField]: ...

    @property
    def pooling(self) -> PoolingFront | None: ...

    @property
    def front(self) -> TaskFront | None: ...

    @property
    def stats(self) -> Stats: ...

    @property
    def healthy(self) -> bool: ...

    @property
    def failure(self) -> EngineError | None: ...

    @property
    def retry_after(self) -> int | None: ...

    @property
    def restarts(self) -> int: ...

    @property
    def lost_weights(self) -> str | None: ...

    @property
    def paused(self) -> bool: ...

    @property
    def request_ids(self) -> list[str]: ...

    async def submit(self, request: GenerationRequest, *, delta: bool = False) -> OutputFeed:
        """Check a request, hand it to the engine, and return its outputs; a beam search is one of them as well.

        Args:
            delta: Outputs hold what is new each time, instead of everything so far.

        Raises:
            RequestError: The request cannot be served as it is; `param` is the front end's name of a field, as in
                everything that raises it for a `GenerationRequest`.
            EngineError: The engine is gone.
        """
        ...

    def render_chat(self, request: GenerationRequest) -> PromptIds:
        """Return the token ids of a request's conversation.

        Raises:
            RequestError: The template refuses it, or it is too long.
        """
        ...

    async def tokenize_chat(self, request: GenerationRequest) -> PromptIds:
        """As `render_chat`; long texts are tokenised beside the event loop, those of several conversations together."""
        ...

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text. Raises `RequestError`: it could never fit, or is not valid Unicode."""
        ...

    async def token_offsets(self, asked: GenerationRequest, ids: Sequence[int]) -> list[tuple[int, int]] | None:
        """Return where each of a prompt's tokens stands in its text, in characters; None where nobody knows."""
        ...

    async def prepare(self, request: GenerationRequest) -> Prepared:
        """Return a request with its token ids and settled limits; nothing is sent. Raises `RequestError`."""
        ...

    async def pool(
        self, work: Work[T], *, priority: int = 0, cache_salt: str | None = None, caller: Caller = NOBODY
    ) -> list[T]:
        """Run work of `front`; cancelling it aborts its requests. Raises `RequestError`, `EngineError`."""
        ...

    async def pool_data(
        self, request: IORequest, *, priority: int = 0, cache_salt: str | None = None, caller: Caller = NOBODY
    ) -> DataAnswer:
        """Answer a request through the model's I/O processor; cancelling it aborts what it runs.

        Raises:
            RequestError: There is no processor, or it or the model refuses the data.
            CoreError: The processor failed, or the engine is gone.
        """
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
