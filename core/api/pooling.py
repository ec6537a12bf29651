"""Pooling: how routes have the engine make vectors, scores and answers to data, and whom core asks for it. Provisional.

Which of the requests is sent says what comes back: `EngineClient.pool` returns a `Pooled` of it. The front half of the
engine's task makes the work of it, as of the calls of Python (`LLM.embed`), if it is a `PoolingFront`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from core.api.fronts import TaskFront

if TYPE_CHECKING:
    from core.api.fronts import Work
    from core.api.io_processors import IOPrompt, IORequest
    from core.api.pooled import (
        ClassificationRequestOutput,
        DataAnswer,
        EmbeddingRequestOutput,
        PoolingOutput,
        PoolingParams,
        PoolingRequestOutput,
        ScoringRequestOutput,
    )
    from core.api.serving import ChatRequest, Usage
    from core.api.shapes import PoolingShape

T = TypeVar("T")

MAX_PROMPTS = 2048
"""Most prompts, or texts of one side, of a request."""


@dataclass(frozen=True, slots=True)
class Pooler:
    """Abilities of a model that gives vectors.

    Attributes:
        tasks: What it can be asked for, its own first: `embed`, `token_embed`, `classify`, `token_classify`, `score`.
        shape: What its vectors are: labels, lengths, the names of its prompts.
        reads_text: Whether it has a tokenizer; else it reads token ids, and data through an I/O processor.
    """

    tasks: tuple[str, ...]
    shape: PoolingShape
    reads_text: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRequest(Generic[T]):
    """How prompts are pooled; what there is to pool is in `VectorRequest`, `ScoreRequest` and `DataRequest`.

    Attributes:
        params: Pooling parameters by the names of `core.PoolingParams`; None is not said.
        priority: Smaller runs earlier, under a policy that looks at it.
        cache_salt: Requests share cached prefixes only under the same salt.
        user: Whom the body names as its user.
        names: Field of a rule -> the API's own field, for errors: of these classes, and those of `params`.
    """

    params: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    cache_salt: str | None = None
    user: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRequest(PoolRequest[np.ndarray]):
    """A vector of each prompt, `(size,)` float32, or `(tokens, size)` for the tasks that give one for each token.

    Numbers of classes come behind the model's activation, in the order of its labels.

    Attributes:
        prompts: At most `MAX_PROMPTS`; of a conversation only what its chat template renders counts.
        task: As in `Pooler.tasks`, but `score`; None: what the model was made for.
    """

    prompts: Sequence[IOPrompt | ChatRequest]
    task: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest(PoolRequest[float]):
    """How well texts belong together, pair by pair; greater is better.

    Attributes:
        queries: As many as documents, or one, which goes with every document.
        documents: At most `MAX_PROMPTS`.
    """

    queries: Sequence[str]
    documents: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRequest(PoolRequest[bytes]):
    """A request for what the model's I/O processor answers to data, as JSON.

    Attributes:
        data: What the client sent.
        task: What the client wants; None leaves it to the processor, and then to the model.
    """

    data: Any
    task: str | None = None


@dataclass(frozen=True, slots=True)
class Pooled(Generic[T]):
    """Result of a request.

    Attributes:
        id: Its name: the prefix that it was asked with, and what makes it unique.
        results: One for each prompt or pair, in their order; of data one.
        usage: Tokens of the prompts; a query that is embedded once, for several documents, counts once.
    """

    id: str
    results: Sequence[T]
    usage: Usage


Pools = Sequence["PoolingRequestOutput[PoolingOutput]"]
"""Outputs of the model for prompts that an I/O processor has made."""


class PoolingFront(TaskFront, ABC):
    """Front half of a task that makes vectors of prompts: core asks it for the work of every pooling call.

    All that make work raise `RequestError` if the model cannot do it, or a prompt or parameter cannot be served;
    `param` names the field that the prompts came from.

    Attributes:
        name: Name the model is served under.
        shape: What its vectors are.
        size: Numbers of a vector.
        tasks: What it can be asked for, as `Pooler.tasks`.
    """

    name: str
    shape: PoolingShape
    size: int
    tasks: tuple[str, ...]

    @abstractmethod
    def check(self, task: str) -> None:
        """Raises `RequestError` unless the model has this task."""

    @abstractmethod
    def embed(
        self, prompts: Sequence[IOPrompt], params: PoolingParams, *, param: str = "prompt"
    ) -> Work[EmbeddingRequestOutput]:
        """Return the embeddings of prompts."""

    @abstractmethod
    def encode(
        self, prompts: Sequence[IOPrompt], params: PoolingParams, task: str | None = None, *, param: str = "prompt"
    ) -> Work[PoolingRequestOutput[PoolingOutput]]:
        """Return what the model gives for a task; None: for the first that it has."""

    @abstractmethod
    def classify(
        self, prompts: Sequence[IOPrompt], params: PoolingParams, *, param: str = "prompt"
    ) -> Work[ClassificationRequestOutput]:
        """Return the classes of prompts."""

    @abstractmethod
    def score(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        params: PoolingParams,
        *,
        query_param: str = "queries",
        param: str = "documents",
    ) -> Work[ScoringRequestOutput]:
        """Return how well texts belong together, pair by pair; a single query goes with every document."""

    @abstractmethod
    async def run(self, request: IORequest, pool: Callable[[Work[Any]], Awaitable[Pools]]) -> DataAnswer:
        """Answer a request that brought data; `pool` runs work.

        Raises:
            RequestError: Nobody reads data, or it cannot be served.
            PluginError: Whoever reads it failed.
        """

    @abstractmethod
    def run_now(self, request: IORequest, pool: Callable[[Work[Any]], Pools]) -> DataAnswer:
        """As `run`, where there is no event loop."""
