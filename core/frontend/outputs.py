"""Output processing: the engine's arrays become text, log-probabilities and finish reasons of requests."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from core.api.errors import RequestError
from core.api.sampling_params import SamplingParams
from core.api.tokenizer import Tokenizer
from core.engine.messages import Add, Finished, Logprobs, Outputs
from core.frontend.adding import add_message, sequence_params
from core.frontend.detokenizer import SequenceText
from core.frontend.inputs import Prepared
from core.frontend.logprobs import LogprobReader
from core.frontend.request import GenerationRequest
from core.frontend.requests import RequestState, SequenceState
from core.frontend.restarts import MOST_DEATHS, SUSPECT, at_work, behind
from core.frontend.results import Logprob
from core.frontend.stops import StopScanner, StopTexts

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Processed:
    """Content of one message of outputs.

    Attributes:
        changed: Requests with something to take, in the order they were touched.
        aborts: Handles that ended here (by a stop text) and that the engine must forget.
    """

    changed: dict[int, RequestState] = field(default_factory=dict)
    aborts: list[int] = field(default_factory=list)


class OutputProcessor:
    """All requests in flight of one front end.

    Args:
        on_finished: Told of every request that ends, for whatever reason.
        told: Returns what clients are told of the parts that came with the end of a sequence.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        on_finished: Callable[[RequestState], None] | None = None,
        told: Callable[[Mapping[str, Any]], dict[str, Any]] = dict,
    ) -> None:
        self._on_finished, self._told = on_finished, told
        self._tokenizer = tokenizer
        self._reader = LogprobReader(tokenizer)
        self._handles = count(1)
        self._names = count()
        self._live: dict[int, tuple[RequestState, SequenceState]] = {}
        self._sent: dict[int, Add] = {}
        self._requests: dict[str, RequestState] = {}

    def __len__(self) -> int:
        """Return the number of sequences in flight."""
        return len(self._live)

    def add(self, prepared: Prepared, name: str | None = None) -> tuple[RequestState, list[Add]]:
        """Register a request and return the messages that start its sequences.

        Args:
            name: What it is called while it is in flight (`name_of`).

        Raises:
            RequestError: The name is in use.
        """
        name = name or self.name_of(prepared.request)
        if name in self._requests:
            raise RequestError(f"request id {name!r} is in use by a running request", param="request_id")
        stops = StopTexts(prepared.params.stop) if prepared.params.stop else None
        sequences, messages = [], []
        prompt = prepared.prompt.ids.tobytes()
        for index, params in enumerate(sequence_params(prepared.params)):
            handle = next(self._handles)
            sequences.append(SequenceState(index, handle, prepared.params, self._text(prepared, stops)))
            messages.append(add_message(prepared, handle, params, prompt))
        request = RequestState(name, prepared, sequences, time.monotonic())
        self._requests[name] = request
        self._live.update({sequence.handle: (request, sequence) for sequence in sequences})
        self._sent.update({message.handle: message for message in messages})
        return request, messages

    def name_of(self, request: GenerationRequest) -> str:
        """Return what a request is called while it is in flight; a new name if it brings none."""
        return request.engine_id or request.request_id or f"request-{next(self._names)}"

    @property
    def ids(self) -> list[str]:
        """Ids of the requests in flight."""
        return list(self._requests)

    def get(self, request_id: str) -> RequestState | None:
        """Return the request of that id, if it is in flight."""
        return self._requests.get(request_id)

    def abort(self, request: RequestState) -> list[int]:
        """End a request here; return the handles that the engine must forget."""
        handles = [sequence.handle for sequence in request.sequences if sequence.handle in self._live]
        for handle in handles:
            self._end(handle, "abort")
        return handles

    def abort_all(self) -> list[RequestState]:
        """End every request; return them."""
        requests = list(self._requests.values())
        for request in requests:
            self.abort(request)
        return requests

    def engine_died(self, rows: int) -> list[RequestState]:
        """Count a death of the engine, which had so many rows, and end the requests that may have caused it.

        Returns:
            Those that ended.
        """
        started = [handle for handle, (_, sequence) in self._live.items() if sequence.started]
        working = [self._live[handle][0] for handle in at_work(self._live, started, rows)]
        requests = {id(request): request for request in working}.values()
        for request in requests:
            request.deaths += 1
        ended = [request for request in requests if request.deaths >= MOST_DEATHS]
        for request in ended:
            logger.error("request %s is ended: %s", request.request_id, SUSPECT)
            for sequence in request.sequences:
                if sequence.handle in self._live:
                    self._end(sequence.handle, "error", Finished(sequence.handle, "error", None, SUSPECT))
        return ended

    def resumed(self) -> list[Add]:
        """Return the messages that have a new engine go on with everything in flight."""
        for request, sequence in self._live.values():
            if not sequence.tokens and sequence.index == 0:
                request.score_again()
        return [behind(self._sent[handle], sequence.tokens) for handle, (_, sequence) in self._live.items()]

    def process(self, outputs: Outputs) -> Processed:
        """Take in what a step produced. Handles that are not in flight any more are passed over."""
        done = Processed()
        now = time.monotonic()
        self._start(outputs, now)
        for handle, positions in outputs.prompt_logprobs.items():
            if handle in self._live:
                self._score(handle, positions, done)
        handles = np.frombuffer(outputs.handles, dtype="<i8").tolist()
        tokens = np.frombuffer(outputs.tokens, dtype="<i4").tolist()
        ends = _ends(outputs, handles)
        for position, (handle, token) in enumerate(zip(handles, tokens, strict=True)):
            live = self._live.get(handle)
            if live is not None:
                live[0].touch(now)
                self._push(live, outputs, position, token, ends.get(position), done)
        for end in outputs.finished:
            self._finish(end, done)
        return done

    # ---------------------------------------------------------------------------------------------------------------

    def _text(self, prepared: Prepared, stops: StopTexts | None) -> SequenceText | None:
        params = prepared.params
        if not params.detokenize:
            return None
        stream = self._tokenizer.stream(prepared.prompt.ids, skip_special_tokens=params.skip_special_tokens)
        scanner = StopScanner(stops, include=params.include_stop_str_in_output) if stops is not None else None
        return SequenceText(stream, scanner, params.min_tokens)

    def _start(self, outputs: Outputs, now: float) -> None:
        for started in outputs.started:
            if started.handle in self._live:
                request, sequence = self._live[started.handle]
                request.metrics.setdefault(
                    "first_scheduled_time", max(now - started.ago, request.metrics["arrival_time"])
                )
                if sequence.index == 0 and not sequence.started:  # the others find what the first one left
                    request.num_cached_tokens = started.cached_tokens
                sequence.started = True

    def _score(self, handle: int, positions: list[Logprobs], done: Processed) -> None:
        """Take in scores of a prompt; whatever goes wrong with them ends this sequence alone."""
        request, sequence = self._live[handle]
        try:
            request.score_prompt(positions, self._reader)
        except Exception as error:
            _break(request, sequence, error)
            done.changed[id(request)] = request
            done.aborts.append(handle)
            self._end(handle, "error")

    def _push(
        self,
        live: tuple[RequestState, SequenceState],
        outputs: Outputs,
        position: int,
        token: int,
        end: Finished | None,
        done: Processed,
    ) -> None:
        """Take in one token; whatever goes wrong with it ends this request alone."""
        request, sequence = live
        done.changed[id(request)] = request
        try:
            params = sequence.params
            scores = outputs.logprobs.get(position)
            logprobs = None if scores is None else self._read(scores, params)
            by_token = end is not None and end.reason == "stop"
            sequence.push(token, logprobs, silent=by_token and not params.include_stop_str_in_output)
            if end is None and params.repetition_detection is not None:
                sequence.check_repetition(token)
        except Exception as error:
            _break(request, sequence, error)
        if sequence.finish_reason is not None:
            if end is None:
                done.aborts.append(sequence.handle)
            self._end(sequence.handle, sequence.finish_reason)

    def _read(self, scores: Logprobs, params: SamplingParams) -> dict[int, Logprob]:
        return self._reader.read(scores, texts=params.detokenize, ranked=not params.logprob_token_ids)

    def _finish(self, end: Finished, done: Processed) -> None:
        if end.handle in self._live:
            request = self._live[end.handle][0]
            done.changed[id(request)] = request
            self._end(end.handle, end.reason, end)

    def _end(self, handle: int, reason: str, end: Finished | None = None) -> None:
        request, sequence = self._live.pop(handle)
        self._sent.pop(handle, None)
        try:
            if end is None:
                sequence.finish(reason)
            else:
                sequence.finish(reason, stop_id=end.stop_id, error=end.error, param=end.param)
                if end.parts:
                    sequence.parts = self._told(end.parts)
        except Exception as failure:
            _break(request, sequence, failure)
        if request.settle():
            request.metrics["finished_time"] = time.monotonic()
            del self._requests[request.request_id]
            if self._on_finished is not None:
                self._on_finished(request)


def _break(request: RequestState, sequence: SequenceState, error: Exception) -> None:
    logger.error("the output of request %s cannot be processed", request.request_id, exc_info=error)
    sequence.fail(f"the output cannot be processed: {type(error).__name__}")


def _ends(outputs: Outputs, handles: list[int]) -> dict[int, Finished]:
    """Return the ends of this message's requests by the position of their last token in it."""
    if not outputs.finished:
        return {}
    last = {handle: position for position, handle in enumerate(handles)}
    return {last[end.handle]: end for end in outputs.finished if end.handle in last}
