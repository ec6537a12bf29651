"""Pooling: how a route plugin has the running engine make vectors, scores and answers to data. Provisional.

Which of the requests is sent says what comes back: `EngineClient.pool` returns a `Pooled` of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from core.api.io_processors import IOPrompt
    from core.api.serving import ChatRequest, Usage
    from core.api.shapes import PoolingShape

T = TypeVar("T")

MAX_PROMPTS = 2048
"""Most prompts, or texts of one side, of a request."""


@dataclass(frozen=True, slots=True)
class Pooler:
    """What a model can do that gives vectors.

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
    """What the model's I/O processor answers to data, as JSON.

    Attributes:
        data: What the client sent.
        task: What the client wants; None leaves it to the processor, and then to the model.
    """

    data: Any
    task: str | None = None


@dataclass(frozen=True, slots=True)
class Pooled(Generic[T]):
    """What came of a request.

    Attributes:
        id: Its name: the prefix that it was asked with, and what makes it unique.
        results: One for each prompt or pair, in their order; of data one.
        usage: Tokens of the prompts; a query that is embedded once, for several documents, counts once.
    """

    id: str
    results: Sequence[T]
    usage: Usage
