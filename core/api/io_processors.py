"""I/O processors: what a pooling model is fed with and what is made of its vectors. Provisional."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from core.api.tokenizer import Tokenizer

IOPrompt = str | Sequence[int] | Mapping[str, Any]
"""A text, token ids, or an object: `prompt` or `prompt_token_ids`, and perhaps `add_special_tokens` (for texts) and
`arrays`, name -> numpy array, which the model's `forward` finds in `StepInputs.arrays`."""


@dataclass(frozen=True, slots=True)
class IOContext:
    """Context that an I/O processor is constructed with.

    Attributes:
        model_name: Name the model is served under.
        model_config: The checkpoint's configuration as it is on disk.
        tasks: What the model can be asked for (`embed`, `token_embed`, `classify`, `token_classify`), its own first.
        labels: Names of its classes; empty for embeddings.
        max_model_len: Longest prompt in tokens.
        tokenizer: The model's.
        options: The plugin's own options.
    """

    model_name: str
    model_config: Mapping[str, Any]
    tasks: tuple[str, ...]
    labels: tuple[str, ...]
    max_model_len: int
    tokenizer: Tokenizer
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IORequest:
    """One request that brought `data`.

    Attributes:
        request_id: Its name in the answer and in logs.
        data: What `parse_request` made of the data; in a call of `parse_request` itself there is none yet.
        task: What the client wants; None leaves it to the processor, and then to the model.
        params: Pooling parameters that the client set, by name (`normalize`, `dimensions`, `use_activation`,
            `truncate_prompt_tokens`).
    """

    request_id: str
    data: Any
    task: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IOPrompts:
    """Prompts for the model, made from a request's data.

    Attributes:
        prompts: At least one. Each runs on its own, beside others in one step where there is room.
        task: As in `IOContext.tasks`; None: what the client wants, or what the model was made for.
        params: Pooling parameters by name; those that the client set are in `IORequest.params`, to be taken over or
            not.
    """

    prompts: Sequence[IOPrompt]
    task: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IOOutput:
    """Output of the model for one prompt.

    Attributes:
        prompt: The prompt as an object, whatever form it was given in: `prompt_token_ids` as the model read them, and
            every key of the object it was given as.
        data: `(size,)` float32, or `(tokens, size)` for the tasks that give something for each token.
    """

    prompt: Mapping[str, Any]
    data: np.ndarray


class IOProcessor(Protocol):
    """Runtime of an `IOProcessorSpec`, in the front end. Torch-free to import.

    One object serves all requests, also at once and from several threads: keep nothing of a request in it; what must
    come along belongs into the parsed data. Each method may be a coroutine function; one that is not runs in a thread.
    `ValueError` (which `RequestError` is) means that the client is at fault and becomes a 400 with its text;
    anything else is a 503 without details.
    """

    def __init__(self, ctx: IOContext) -> None: ...

    def parse_request(self, data: Any) -> Any:
        """Check what the client sent as `data` (any JSON value; offline any object) and return it as later methods
        want it."""
        ...

    def pre_process(self, request: IORequest) -> IOPrompts | Awaitable[IOPrompts]:
        """Return the prompts of a request."""
        ...

    def post_process(self, request: IORequest, outputs: Sequence[IOOutput]) -> Any | Awaitable[Any]:
        """Return the answer, a value of which JSON can be made (numpy arrays included).

        Args:
            outputs: One for each prompt, in their order.
        """
        ...
