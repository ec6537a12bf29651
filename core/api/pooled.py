"""Parameters and results of pooling calls, with the names that users of other engines know. Provisional."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from core.api.errors import RequestError

T = TypeVar("T")

MAX_DIMENSIONS = 2**16


class PoolingParams(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """How a vector is made of a prompt.

    Attributes:
        dimensions: Length to which an embedding is cut, for models made for it (Matryoshka).
        normalize: Whether an embedding gets length 1; None: as the model's makers did.
        use_activation: Whether the numbers of classes become probabilities; None: yes.
        truncate_prompt_tokens: Cut longer prompts to this many tokens, special tokens included; -1: to the model's
            length; None refuses them.
        prompt_name: Purpose of texts to be embedded, whose prompt of the model's makers is put in front of them;
            empty: nothing is; None: what the makers do.

    Raises:
        RequestError: A value is outside its range; `param` names the field.
    """

    dimensions: int | None = None
    normalize: bool | None = None
    use_activation: bool | None = None
    truncate_prompt_tokens: int | None = None
    prompt_name: str | None = None

    def __post_init__(self) -> None:
        _integer("dimensions", self.dimensions, 1, MAX_DIMENSIONS)
        _integer("truncate_prompt_tokens", self.truncate_prompt_tokens, -1, 2**31 - 1)
        if self.truncate_prompt_tokens == 0:
            raise RequestError("truncate_prompt_tokens must be positive, or -1", param="truncate_prompt_tokens")


@dataclass(slots=True)
class PoolingOutput:
    """Output of the model for one prompt.

    Attributes:
        data: A vector `(size,)`, or one for each token `(tokens, size)`, float32.
    """

    data: np.ndarray


@dataclass(slots=True)
class EmbeddingOutput:
    """An embedding.

    Attributes:
        array: `(size,)` float32.
    """

    array: np.ndarray

    @property
    def embedding(self) -> list[float]:
        """The embedding as a list."""
        values: list[float] = self.array.tolist()
        return values


@dataclass(slots=True)
class ClassificationOutput:
    """One number per label.

    Attributes:
        probs: In the order of the model's labels.
        label: The label with the greatest number.
    """

    probs: list[float]
    label: str

    @property
    def num_classes(self) -> int:
        """How many labels there are."""
        return len(self.probs)


@dataclass(slots=True)
class ScoringOutput:
    """How well two texts belong together.

    Attributes:
        score: Greater is better.
    """

    score: float


@dataclass(slots=True)
class PoolingRequestOutput(Generic[T]):
    """Result of one prompt, or of one pair.

    Attributes:
        request_id: The client's id, or one that was made.
        outputs: The vector, classes or score.
        finished: Always true.
        prompt_token_ids: Of a pair that was embedded text by text, those of both.
        num_cached_tokens: Prompt tokens whose keys and values came from the prefix cache.
    """

    request_id: str
    outputs: T
    prompt_token_ids: list[int]
    num_cached_tokens: int = 0
    finished: bool = True


EmbeddingRequestOutput = PoolingRequestOutput[EmbeddingOutput]
ClassificationRequestOutput = PoolingRequestOutput[ClassificationOutput]
ScoringRequestOutput = PoolingRequestOutput[ScoringOutput]


@dataclass(frozen=True, slots=True)
class DataAnswer:
    """Answer of an I/O processor, and the model's output that it was made of.

    Attributes:
        answer: A value of which JSON can be made (numpy arrays included).
        outputs: One for each prompt.
    """

    answer: Any
    outputs: list[PoolingRequestOutput[PoolingOutput]]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(len(one.prompt_token_ids) for one in self.outputs)


def _integer(name: str, value: object, low: int, high: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(f"{name} must be an integer between {low} and {high}, got {value!r:.40}", param=name)
