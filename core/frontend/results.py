"""Results of a generation, with the names that users of other engines know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core.frontend.prompts import PromptIds


@dataclass(slots=True)
class Logprob:
    """One token's log-probability at one position.

    Attributes:
        logprob: Natural logarithm of its probability.
        rank: 1 for the most likely token; None where that is not known.
        decoded_token: Its text.
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(slots=True)
class CompletionOutput:
    """One generated sequence, or in delta mode what is new of it.

    Attributes:
        index: Which of the `n` sequences.
        text: Generated text.
        token_ids: Generated token ids.
        cumulative_logprob: Sum over all tokens so far, when log-probabilities were asked for.
        logprobs: One dict per token, the sampled token first, then the best alternatives.
        finish_reason: `stop`, `length`, `abort`, `error`, or None while it runs.
        stop_reason: The stop text or stop token id that ended it, if one did.
        error: What went wrong, when finish_reason is `error`.
        error_param: Field of the request that is at fault, when the error is the client's mistake.
        parts: What participants say of a sequence that ended, by name.
        message: What `LLM.chat` reads of the text: the assistant's message in OpenAI's form, with `content`, and as far
            as there are any `tool_calls` and `reasoning`. It may be sent back as a message of the conversation.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    error: str | None = None
    error_param: str | None = None
    parts: dict[str, Any] = field(default_factory=dict)
    message: dict[str, Any] | None = None

    def finished(self) -> bool:
        """Whether this sequence has ended."""
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestOutput:
    """All sequences of one request.

    Attributes:
        request_id: The client's id, or one that was made.
        prompt: The prompt's text, if it was given as text.
        prompt_ids: The prompt's token ids; an `array` of int32 that all outputs of the request share.
        outputs: Its sequences, `n` of them.
        finished: Whether all of them have ended.
        metrics: Monotonic times in seconds: `arrival_time`, `first_scheduled_time`, `first_token_time`,
            `last_token_time`, `finished_time`, as far as they have come.
        prompt_logprobs: One entry per prompt token, None for the first.
        num_cached_tokens: Prompt tokens whose KV came from the prefix cache.
    """

    request_id: str
    prompt: str | None
    prompt_ids: PromptIds
    outputs: list[CompletionOutput]
    finished: bool = False
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    num_cached_tokens: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt's token ids as a list, which is made anew each time."""
        return self.prompt_ids.tolist()
