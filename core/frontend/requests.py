"""Requests in flight: what has arrived of each sequence, and what of it was handed out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.api.sampling_params import SamplingParams
from core.engine.messages import Logprobs
from core.frontend.detokenizer import SequenceText
from core.frontend.inputs import Prepared
from core.frontend.logprobs import LogprobReader
from core.frontend.repetition import DETECTED, REASON, RepetitionScanner
from core.frontend.results import CompletionOutput, Logprob, RequestOutput


class SequenceState:
    """One sequence. New tokens gather until someone takes them, so a slow reader gets them merged.

    Args:
        text: None when the request wants token ids only.

    Attributes:
        started: Whether an engine has said that it works on it.
    """

    __slots__ = (
        "_cumulative",
        "_end_taken",
        "_logprobs",
        "_repetition",
        "_taken",
        "_text",
        "_tokens",
        "_whole",
        "error",
        "error_param",
        "finish_reason",
        "handle",
        "index",
        "params",
        "parts",
        "started",
        "stop_reason",
    )

    def __init__(self, index: int, handle: int, params: SamplingParams, text: SequenceText | None) -> None:
        self.index, self.handle, self.params = index, handle, params
        self.started = False
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.error: str | None = None
        self.error_param: str | None = None
        self.parts: dict[str, Any] = {}
        self._text = text
        self._repetition = (
            None if params.repetition_detection is None else RepetitionScanner(params.repetition_detection)
        )
        self._whole = ""
        self._tokens: list[int] = []
        self._logprobs: list[dict[int, Logprob]] | None = None if params.logprobs is None else []
        self._cumulative = None if params.logprobs is None else 0.0
        self._taken = 0
        self._end_taken = False

    def push(self, token: int, logprobs: dict[int, Logprob] | None, *, silent: bool = False) -> None:
        """Take in a token; `silent` keeps a stop token out of the text. A stop text may end the sequence here."""
        self._tokens.append(token)
        if self._logprobs is not None and self._cumulative is not None and logprobs is not None:
            self._logprobs.append(logprobs)
            self._cumulative += logprobs[token].logprob
        if self._text is not None and not silent:
            stop = self._text.push(token)
            if stop is not None:
                self._stopped_by(stop)

    def check_repetition(self, token: int) -> None:
        """End the sequence if it repeats itself with this token, which is not its last for another reason."""
        if self._repetition is None or not self._repetition.push(token) or self.finish_reason is not None:
            return
        if len(self._tokens) >= self.params.min_tokens:
            self.finish(REASON)
            if self.finish_reason == REASON:
                self.stop_reason = DETECTED

    def finish(
        self, reason: str, *, stop_id: int | None = None, error: str | None = None, param: str | None = None
    ) -> None:
        """End the sequence, unless a stop text already has, or does now with what was still held back."""
        if self.finish_reason is None and self._text is not None:
            self._stopped_by(self._text.finish())
        if self.finish_reason is None:
            self.finish_reason, self.stop_reason, self.error, self.error_param = reason, stop_id, error, param

    def fail(self, error: str) -> None:
        """End the sequence for an error of the front end's own."""
        self.finish_reason, self.stop_reason, self.error = "error", None, error
        self._text = None

    @property
    def num_tokens(self) -> int:
        """Output tokens so far."""
        return len(self._tokens)

    @property
    def tokens(self) -> Sequence[int]:
        """Output tokens so far."""
        return self._tokens

    @property
    def fresh(self) -> bool:
        """Whether there is anything that was not taken yet."""
        return len(self._tokens) > self._taken or (self.finish_reason is not None and not self._end_taken)

    def take(self, *, delta: bool) -> CompletionOutput:
        """Return what is new, or everything so far."""
        new = self._text.take() if self._text is not None else ""
        start = self._taken if delta else 0
        if not delta:
            self._whole += new
        self._taken, self._end_taken = len(self._tokens), self.finish_reason is not None
        return CompletionOutput(
            index=self.index,
            text=new if delta else self._whole,
            token_ids=self._tokens[start:],
            cumulative_logprob=self._cumulative,
            logprobs=None if self._logprobs is None else self._logprobs[start:],
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            error=self.error,
            error_param=self.error_param,
            parts=self.parts,
        )

    def _stopped_by(self, stop: str | None) -> None:
        if stop is not None:
            self.finish_reason, self.stop_reason = "stop", stop


class RequestState:
    """One request with its `n` sequences.

    Attributes:
        caller: Who sent it.
        metrics: Monotonic times in seconds: `arrival_time`, `first_scheduled_time`, `first_token_time`,
            `last_token_time`, `finished_time`, as far as they have come.
        deaths: How many engines died while they worked on it.
        finished: Whether every sequence has ended.
    """

    __slots__ = (
        "_prompt_logprobs",
        "_prompt_logprobs_new",
        "_texts",
        "caller",
        "deaths",
        "finished",
        "metrics",
        "num_cached_tokens",
        "prompt",
        "request_id",
        "sequences",
    )

    def __init__(self, request_id: str, prepared: Prepared, sequences: list[SequenceState], arrival: float) -> None:
        self.caller = prepared.request.caller
        self.request_id, self.prompt, self.sequences = request_id, prepared.prompt, sequences
        self.num_cached_tokens = 0
        self.finished = False
        self.deaths = 0
        self.metrics: dict[str, Any] = {"arrival_time": arrival}
        self._texts = prepared.params.detokenize
        self._prompt_logprobs: list[dict[int, Logprob] | None] | None = (
            None if prepared.params.prompt_logprobs is None else [None]
        )
        self._prompt_logprobs_new = self._prompt_logprobs is not None

    def touch(self, now: float) -> None:
        """A token has come."""
        times = self.metrics
        if "first_token_time" not in times:
            times["first_token_time"] = now
        times["last_token_time"] = now

    def settle(self) -> bool:
        """A sequence has ended; return whether it was the last one."""
        self.finished = all(sequence.finish_reason is not None for sequence in self.sequences)
        return self.finished

    def score_prompt(self, positions: list[Logprobs], reader: LogprobReader) -> None:
        """Add the log-probabilities of further prompt tokens."""
        if self._prompt_logprobs is not None:
            self._prompt_logprobs += [reader.read(position, texts=self._texts) for position in positions]

    def score_again(self) -> None:
        """Forget the scores of a prompt of which no token has come: its next engine sends them all."""
        if self._prompt_logprobs is not None:
            del self._prompt_logprobs[1:]

    def take(self, *, delta: bool) -> RequestOutput:
        """Return the new parts of the sequences that have some (`delta`), or all sequences as they stand."""
        scores = None if self._prompt_logprobs is None else self._take_prompt_logprobs(delta)
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt.text,
            prompt_ids=self.prompt.ids,
            outputs=[sequence.take(delta=delta) for sequence in self.sequences if not delta or sequence.fresh],
            finished=self.finished,
            prompt_logprobs=scores,
            num_cached_tokens=self.num_cached_tokens,
            metrics=self.metrics.copy(),
        )

    def _take_prompt_logprobs(self, delta: bool) -> list[dict[int, Logprob] | None] | None:
        """In deltas the prompt's scores come once, with the first tokens, when they are complete."""
        if delta and not self._prompt_logprobs_new:
            return None
        self._prompt_logprobs_new = False
        return self._prompt_logprobs
