"""Offline pooling: the methods of `LLM` that give vectors, classes and scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from core.api.fronts import Work
from core.api.pooled import (
    ClassificationRequestOutput,
    EmbeddingRequestOutput,
    PoolingParams,
    PoolingRequestOutput,
    ScoringRequestOutput,
)
from core.api.pooling import PoolingFront
from core.engine.client import SyncEngine
from core.engine.messages import Abort, Outputs
from core.frontend.prompts import PromptInput, as_list
from core.frontend.stepping import step
from core.frontend.tasks.data import as_output, data_of, io_request
from core.frontend.tasks.requests import TaskRequests

T = TypeVar("T")

Prompts = PromptInput | Sequence[PromptInput]


class PoolingCalls(ABC):
    """Methods for models that pool; prompts as for `LLM.generate`.

    All raise `RequestError` when the model cannot do it or a prompt or parameter cannot be served (nothing was run
    then), and `EngineError` when the engine failed.
    """

    def embed(
        self, prompts: Prompts, pooling_params: PoolingParams | None = None, *, use_tqdm: bool = False
    ) -> list[EmbeddingRequestOutput]:
        """Return the embeddings of one prompt or many, in the prompts' order."""
        work = self._pooler().embed(as_list(prompts), pooling_params or PoolingParams())
        return self._pool(work, shown=use_tqdm)

    def encode(
        self,
        prompts: Prompts,
        pooling_params: PoolingParams | None = None,
        *,
        pooling_task: str | None = None,
        use_tqdm: bool = False,
    ) -> list[PoolingRequestOutput[Any]]:
        """Return arrays (`PoolingOutput`): what the model gives for `embed`, `token_embed`, `classify` or
        `token_classify`.

        A prompt `{"data": ...}`, or a list of such, is for the model's I/O processor: `outputs` is then its answer.
        """
        params, data = pooling_params or PoolingParams(), data_of(prompts)
        if data is None:
            work = self._pooler().encode(as_list(prompts), params, pooling_task)
            return self._pool(work, shown=use_tqdm)
        pooler, pool = self._pooler(), partial(self._pool, shown=use_tqdm)
        return [
            as_output(request, pooler.run_now(request, pool))
            for request in (io_request(one, params, pooling_task, f"pooling-{index}") for index, one in enumerate(data))
        ]

    def classify(
        self, prompts: Prompts, pooling_params: PoolingParams | None = None, *, use_tqdm: bool = False
    ) -> list[ClassificationRequestOutput]:
        """Return the probability of every label for one prompt or many."""
        work = self._pooler().classify(as_list(prompts), pooling_params or PoolingParams())
        return self._pool(work, shown=use_tqdm)

    def score(
        self,
        queries: str | Sequence[str],
        documents: str | Sequence[str],
        pooling_params: PoolingParams | None = None,
        *,
        use_tqdm: bool = False,
    ) -> list[ScoringRequestOutput]:
        """Return how well queries and documents belong together, pair by pair; one query goes with every document."""
        first, second = ([one] if isinstance(one, str) else list(one) for one in (queries, documents))
        work = self._pooler().score(first, second, pooling_params or PoolingParams())
        return self._pool(work, shown=use_tqdm)

    @abstractmethod
    def _pooler(self) -> PoolingFront:
        """Return what makes vectors. Raises `RequestError` if the model generates."""

    @abstractmethod
    def _pool(self, work: Work[T], *, shown: bool) -> list[T]:
        """Run work to its end."""


def run_work(
    engine: SyncEngine,
    requests: TaskRequests,
    work: Work[T],
    room: int,
    observe: Callable[[Outputs, int], None],
) -> list[T]:
    """Run work on an engine that is stepped here, with at most `room` requests in flight.

    Args:
        observe: Called with every message of outputs, and how many prompts it finished.
    """
    batch, messages = requests.add(work.prompts)
    queue = deque(messages)
    try:
        while not batch.done:
            while queue and len(requests) - len(queue) < room:
                engine.send(queue.popleft())
            for message in step(engine):
                if isinstance(message, Outputs):
                    before = len(requests)
                    if superfluous := requests.process(message):
                        engine.send(Abort(superfluous))
                    observe(message, before - len(requests))
    finally:
        if left := requests.drop(batch):
            engine.send(Abort(left))
    return work.finish(batch.answers())
