"""A pooling model's view from the front: which tasks it has, what it sends to the engine, what becomes of vectors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from core.api.errors import RequestError
from core.api.fronts import TaskInputs, Work
from core.api.io_processors import IOPrompt, IORequest
from core.api.pooled import (
    ClassificationOutput,
    ClassificationRequestOutput,
    DataAnswer,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    PoolingOutput,
    PoolingParams,
    PoolingRequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from core.api.pooling import PoolingFront, Pools
from core.api.shapes import PoolingShape
from core_plugin_pool.data import DataPooling, no_processor
from core_plugin_pool.engine import PoolingMethod, Vector
from core_plugin_pool.inputs import PoolingInputs, PoolingPrompt

T = TypeVar("T")
P = TypeVar("P", bound=IOPrompt)

DOCUMENTS = ("document", "passage", "corpus")
"""Names that makers give to the purpose of what is searched, the usual one first."""

NOT_SUPPORTED = "task_not_supported"


@dataclass(frozen=True, slots=True)
class PooledVector:
    """A prompt's vector as the engine gave it, `(size,)` or `(tokens, size)` float32."""

    vector: np.ndarray
    num_cached_tokens: int = 0


class PoolingModel(PoolingFront):
    """Turns calls into work for the engine.

    Args:
        name: Name the model is served under.
        hidden_size: Length of its hidden states.

    Attributes:
        data: What answers requests that bring data; None: nobody does.
    """

    part = Vector

    def __init__(self, name: str, shape: PoolingShape, inputs: TaskInputs, hidden_size: int) -> None:
        self.name, self.shape = name, shape
        self.size = len(shape.labels) if shape.task == "classify" else shape.size or hidden_size
        self._inputs = PoolingInputs(inputs)
        self.tasks = _tasks(shape)
        self.gives = "embeddings" if shape.task == "embed" else "classes and scores"
        self.data: DataPooling | None = None

    def answer(self, part: Vector, num_cached_tokens: int) -> PooledVector:
        """Return a prompt's vector."""
        return PooledVector(part.array(), num_cached_tokens)

    def check(self, task: str) -> None:
        """Raises `RequestError` unless the model has this task."""
        if task not in self.tasks:
            has = f"it can {', '.join(self.tasks)}"
            if task == "score" and self.shape.task == "classify":
                has = f"scores take a model with a single label, this one has {len(self.shape.labels)}"
            raise RequestError(f"model '{self.name}' cannot {task}: {has}", code=NOT_SUPPORTED)

    @property
    def encodings(self) -> tuple[str, ...]:
        """The tasks that `encode` has."""
        return tuple(task for task in self.tasks if task != "score")

    def prompt_for(self, purposes: Sequence[str]) -> str | None:
        """Return the first purpose that the model's makers have a prompt for; None if there is none."""
        return next((one for one in purposes if one in self.shape.prompts), None)

    # -- calls -----------------------------------------------------------------------------------------------------

    def embed(
        self, prompts: Sequence[IOPrompt], params: PoolingParams, *, param: str = "prompt"
    ) -> Work[EmbeddingRequestOutput]:
        """Return the embeddings of prompts. Raises `RequestError`; `param` names the field they came from."""

        def finish(answer: PooledVector) -> EmbeddingOutput:
            return EmbeddingOutput(self._embedding(answer.vector, params))

        return self._each("embed", prompts, params, finish, param)

    def encode(
        self, prompts: Sequence[IOPrompt], params: PoolingParams, task: str | None = None, *, param: str = "prompt"
    ) -> Work[PoolingRequestOutput[PoolingOutput]]:
        """Return what the model gives for a task; None: for the first that it has."""

        def finish(answer: PooledVector) -> PoolingOutput:
            embeds = self.shape.task == "embed"
            made = self._embedding(answer.vector, params) if embeds else self._classes(answer.vector, params)
            return PoolingOutput(made)

        return self._each(task or self.tasks[0], prompts, params, finish, param)

    def classify(
        self, prompts: Sequence[IOPrompt], params: PoolingParams, *, param: str = "prompt"
    ) -> Work[ClassificationRequestOutput]:
        """Return the classes of prompts."""

        def finish(answer: PooledVector) -> ClassificationOutput:
            numbers = self._classes(answer.vector, params)
            return ClassificationOutput(numbers.tolist(), self.shape.labels[int(numbers.argmax())])

        return self._each("classify", prompts, params, finish, param)

    def score(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        params: PoolingParams,
        *,
        query_param: str = "queries",
        param: str = "documents",
    ) -> Work[ScoringRequestOutput]:
        """Return how well texts belong together, pair by pair; a single query goes with every document.

        A cross-encoder reads both texts as one prompt; an embedding model compares their embeddings (cosine; of
        vectors for each token, for each of the query the best of the document).
        """
        self.check("score")
        if not queries or not documents or len(queries) not in (1, len(documents)):
            raise RequestError(
                f"{len(queries)} queries do not go with {len(documents)} documents: give one, or as many", param=param
            )
        owners = [index if len(queries) > 1 else 0 for index in range(len(documents))]
        if self.shape.task == "embed":
            method = self.shape.method
            left = self._inputs.prompts(self._as(("query",), queries, params), params, method, query_param)
            right = self._inputs.prompts(self._as(DOCUMENTS, documents, params), params, method, param)
            return self._compare(left, right, owners)
        pairs = [(queries[owner], document) for owner, document in zip(owners, documents, strict=True)]
        prompts = self._inputs.pairs(pairs, params, self.shape.method, param)

        def finish(answer: PooledVector) -> ScoringOutput:
            return ScoringOutput(float(self._classes(answer.vector, params)[0]))

        return Work(prompts, lambda answers: _outputs(prompts, answers, finish))

    async def run(self, request: IORequest, pool: Callable[[Work[Any]], Awaitable[Pools]]) -> DataAnswer:
        """Answer a request that brought data."""
        return await self._data().run(request, pool)

    def run_now(self, request: IORequest, pool: Callable[[Work[Any]], Pools]) -> DataAnswer:
        """As `run`, where there is no event loop."""
        return self._data().run_now(request, pool)

    # ---------------------------------------------------------------------------------------------------------------

    def _data(self) -> DataPooling:
        if self.data is None:
            raise no_processor(self.name)
        return self.data

    def _each(
        self,
        task: str,
        prompts: Sequence[IOPrompt],
        params: PoolingParams,
        finish: Callable[[PooledVector], T],
        param: str,
    ) -> Work[PoolingRequestOutput[T]]:
        self.check(task)
        self._check_dimensions(params)
        method: PoolingMethod = "all" if task.startswith("token_") else self.shape.method
        if self.shape.task == "embed":
            prompts = self._as((), prompts, params)
        ready = self._inputs.prompts(prompts, params, method, param)
        return Work(ready, lambda answers: _outputs(ready, answers, finish))

    def _as(self, purposes: Sequence[str], prompts: Sequence[P], params: PoolingParams) -> list[P]:
        """Return prompts behind what the model's makers put in front of texts for the first purpose that they know.

        Raises:
            RequestError: The request names another purpose.
        """
        shape, name = self.shape, params.prompt_name
        if name is None:
            name = self.prompt_for(purposes) or shape.default_prompt
        elif name and name not in shape.prompts:
            known = f"it has {', '.join(shape.prompts)}" if shape.prompts else "it has none"
            raise RequestError(f"model '{self.name}' has no prompt '{name:.40}'; {known}", param="prompt_name")
        front = shape.prompts[name] if name else ""
        return [_behind(front, prompt) for prompt in prompts] if front else list(prompts)

    def _compare(
        self, queries: list[PoolingPrompt], documents: list[PoolingPrompt], owners: list[int]
    ) -> Work[ScoringRequestOutput]:
        prompts, first = [*queries, *documents], len(queries)

        def finish(answers: list[PooledVector]) -> list[ScoringRequestOutput]:
            vectors = [normalized(answer.vector) for answer in answers]
            return [
                PoolingRequestOutput(
                    f"score-{index}",
                    ScoringOutput(similarity(vectors[owner], vectors[first + index])),
                    prompts[owner].ids + prompts[first + index].ids,
                    answers[owner].num_cached_tokens + answers[first + index].num_cached_tokens,
                )
                for index, owner in enumerate(owners)
            ]

        return Work(prompts, finish)

    def _check_dimensions(self, params: PoolingParams) -> None:
        asked, shape = params.dimensions, self.shape
        if asked is None or (shape.task == "embed" and asked == self.size):
            return
        allowed = shape.any_dimensions or asked in shape.dimensions
        if shape.task != "embed" or not allowed or asked > self.size:
            only = f"one of {', '.join(map(str, shape.dimensions))}" if shape.dimensions else "none"
            only = f"at most {self.size}" if shape.any_dimensions else only
            text = f"dimensions {asked}: model '{self.name}' was not made to be cut to it; allowed: {only}"
            raise RequestError(text, param="dimensions")

    def _embedding(self, vector: np.ndarray, params: PoolingParams) -> np.ndarray:
        if params.dimensions is not None:
            vector = vector[..., : params.dimensions]
        wanted = self.shape.normalize if params.normalize is None else params.normalize
        return normalized(vector) if wanted else vector

    def _classes(self, numbers: np.ndarray, params: PoolingParams) -> np.ndarray:
        if params.use_activation is False or self.shape.activation == "none":
            return numbers
        if self.shape.activation == "sigmoid":
            # Both forms of the function, so that no exponent can overflow.
            small = np.exp(-np.abs(numbers))
            return np.asarray(np.where(numbers >= 0, 1 / (1 + small), small / (1 + small)), dtype=np.float32)
        shifted = np.exp(numbers - numbers.max(axis=-1, keepdims=True))
        return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True), dtype=np.float32)


def _tasks(shape: PoolingShape) -> tuple[str, ...]:
    if shape.task == "embed":
        return ("token_embed", "score") if shape.method == "all" else ("embed", "token_embed", "score")
    if shape.method == "all":
        return ("token_classify",)
    return ("classify", "score") if len(shape.labels) == 1 else ("classify",)


def similarity(query: np.ndarray, document: np.ndarray) -> float:
    """Return how near two embeddings of length 1 are.

    Of embeddings for each token, `(tokens, size)`, each of the query counts with the nearest of the document (MaxSim).
    """
    if query.ndim == 1:
        return float(query @ document)
    return float((query @ document.T).max(axis=1).sum())


def _behind(front: str, prompt: P) -> P:
    """Return a prompt with a text in front of its own; token ids stay as they are."""
    if isinstance(prompt, str):
        return cast(P, front + prompt)
    if isinstance(prompt, Mapping) and isinstance(prompt.get("prompt"), str) and not prompt.get("prompt_token_ids"):
        return cast(P, {**prompt, "prompt": front + prompt["prompt"]})
    return prompt


def normalized(vector: np.ndarray) -> np.ndarray:
    """Return a vector, or each of several, with length 1; zeros stay zeros."""
    length = np.linalg.norm(vector, axis=-1, keepdims=True)
    return np.asarray(vector / np.maximum(length, 1e-12), dtype=np.float32)


def _outputs(
    prompts: list[PoolingPrompt], answers: list[PooledVector], finish: Callable[[PooledVector], T]
) -> list[PoolingRequestOutput[T]]:
    return [
        PoolingRequestOutput(f"pooling-{index}", finish(answer), prompt.ids, answer.num_cached_tokens)
        for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
    ]
