"""Answers as route plugins see them: a generation whose outputs are read before they are handed on."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
import numpy as np

from core.api.errors import RequestError
from core.api.parsers import Text
from core.api.serving import ChatRequest, Delta, Finish, More, Take, TextRequest, Timings, Usage
from core.frontend.answering.chat import ChatAnswer
from core.frontend.answering.reader import AnswerReader
from core.frontend.prompts import PromptIds, prompt_ids
from core.frontend.request import GenerationRequest
from core.frontend.results import CompletionOutput, RequestOutput
from core.server.errors import as_api_error, log_unexpected
from core.server.serving.entry import as_asked, open_chat, open_generation, within
from core.server.serving.generation import Generation, new_id
from core.server.serving.prompt import ServedPrompt
from core.server.serving.request import chat_request, text_requests
from core.server.serving.scores import ScoredTokens
from core.server.state import ServerState


@dataclass(slots=True)
class ServedAnswer:
    """`core.api.serving.Answer` over a generation.

    Attributes:
        chat: What reads it; None for prompts that are continued as they are.
        fitted: The limit of tokens was lowered to what the model's length leaves.
        admitted: It goes on with an answer that the server took before.
        prompts: What is known of them.
    """

    generation: Generation
    chat: ChatAnswer | None
    fitted: bool
    admitted: bool = False
    prompts: dict[int, ServedPrompt] = field(default_factory=dict)
    _readers: dict[int, AnswerReader] = field(default_factory=dict)
    _tokens: ScoredTokens = field(init=False)

    def __post_init__(self) -> None:
        self._tokens = ScoredTokens(self.generation.params, self.generation.state.llm.tokenizer)

    @property
    def id(self) -> str:
        """Its name."""
        return self.generation.id

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return self.generation.usage

    @property
    def timings(self) -> Timings:
        """Seconds so far."""
        found = self.generation.timings()
        return Timings(found["first_token_seconds"], found["total_seconds"])

    def call_id(self, name: str, number: int) -> str:
        """Return the id of a call. Raises `TypeError`: there are none without a parser."""
        if self.chat is None:
            raise TypeError("a prompt that is continued as it is has no calls")
        return self.chat.call_id(name, number)

    async def run(self, take: Take, more: More | None = None) -> None:
        """Generate, and give everything to `take`. Raises `RequestError`, and what `take` and `more` raise."""
        theirs: list[BaseException] = []  # what the route did wrong is not the engine's fault
        if not self.admitted:  # several may have been opened for one request; each counts as waiting from here on
            self.generation.state.admit(self.generation.sequences)

        n, prompts, delta = self.generation.params.n, self.prompts, self._delta

        def given(prompt: int, output: RequestOutput) -> bool:
            if prompt not in prompts:
                prompts[prompt] = ServedPrompt(output, self._tokens)
            if output.prompt_logprobs is not None:
                prompts[prompt].output = output
            new = output.outputs
            if len(new) == 1:
                deltas = [delta(prompt * n + new[0].index, new[0])]
            else:
                deltas = [delta(prompt * n + sequence.index, sequence) for sequence in new]
            try:
                return take(deltas)
            except BaseException as error:
                theirs.append(error)
                raise

        try:
            with self.generation.state.lifecycle.counted():  # a socket's, which no job counts
                await self.generation.run(given, more and _noting(more, theirs))
        except Exception as error:
            if error in theirs or isinstance(error, RequestError):
                raise
            log_unexpected(error)
            raise as_api_error(error) from error

    def _delta(self, index: int, sequence: CompletionOutput) -> Delta:
        """Return what is new of a sequence. One call a token: what it calls is a good part of what a stream costs."""
        reason, chat = sequence.finish_reason, self.chat
        finish = None if reason is None else Finish(reason, sequence.stop_reason, told(sequence))
        if chat is None:
            return self._continued(index, sequence, finish)
        reader = self._readers.get(index)
        if reader is None:
            reader = self._readers[index] = chat.reader()
        scores = self._tokens.of(sequence) if sequence.logprobs else ()
        return Delta(index, reader.read(sequence), sequence.token_ids, finish, scores)

    def _continued(self, index: int, sequence: CompletionOutput, finish: Finish | None) -> Delta:
        if self.generation.prompt_only:
            return Delta(index, (), (), finish and Finish("length", told=finish.told))
        events = [Text(sequence.text)] if sequence.text else []
        scores = self._tokens.of(sequence) if sequence.logprobs else ()
        return Delta(index, events, sequence.token_ids, finish, scores)


def _noting(more: More, raised: list[BaseException]) -> More:
    async def asked() -> bool:
        try:
            return await more()
        except BaseException as error:
            raised.append(error)
            raise

    return asked


async def open_answer(
    asked: ChatRequest | TextRequest, state: ServerState, prefix: str, name: str | None = None, turn: int = 0
) -> ServedAnswer:
    """Check, admit and render what a plugin asks for. Raises `RequestError`.

    Args:
        name: The whole id of what was admitted before; None: a new one.
        turn: Which of its generations it is.
    """
    called = AnswerName(name or new_id(prefix), name, turn)
    if isinstance(asked, ChatRequest):
        return await open_chat_answer(asked, state, called)
    return await open_text_answer(asked, state, called)


@dataclass(frozen=True, slots=True)
class AnswerName:
    """Names of an answer, for clients and in the engine.

    Attributes:
        id: Of the request; clients, and operators, know all its generations by it.
        before: The same where the request was admitted before; None: this is its first generation.
        turn: Which of its generations it is.
    """

    id: str
    before: str | None
    turn: int

    @property
    def admitted(self) -> bool:
        """It goes on with an answer that the server took before."""
        return self.before is not None

    @property
    def name(self) -> str:
        """Name of the generation in the engine, which may still be ending the one before."""
        return f"{self.id}-{self.turn}" if self.turn else self.id


async def open_chat_answer(asked: ChatRequest, state: ServerState, called: AnswerName) -> ServedAnswer:
    """Check, admit and render a conversation. Raises `RequestError`."""
    wanted, settle = chat_request(asked, state), within if asked.fitted else as_asked
    if not called.admitted:
        state.admit(wanted.params.n)
    chat = await open_chat(state, wanted, called.name, interval=asked.interval, settle=settle)
    chat.generation.id = called.before or chat.generation.id
    return ServedAnswer(chat.generation, chat.answer, chat.generation.params is not chat.answer.params, called.admitted)


async def open_text_answer(asked: TextRequest, state: ServerState, called: AnswerName) -> ServedAnswer:
    """Check, admit and tokenise prompts that are continued as they are. Raises `RequestError`."""
    requests = text_requests(asked, state)
    fitted = [await _fitted(one, state) for one in requests] if asked.fitted else requests
    generation = open_generation(
        state, fitted, called.name, interval=asked.interval, admitted=called.admitted, prompt_only=asked.only_prompt
    )
    generation.id = called.before or generation.id
    return ServedAnswer(generation, None, fitted[0].params is not requests[0].params, called.admitted)


async def _fitted(request: GenerationRequest, state: ServerState) -> GenerationRequest:
    """Return a request with its tokens, which asks for no more than there is room for behind them."""
    text, ids = request.prompt, request.prompt
    if isinstance(text, str):
        ids = prompt_ids(await state.tokenize(text))
    elif isinstance(text, Mapping):
        ids = prompt_ids(await state.tokenize(text["prompt"], add_special_tokens=False))
    room = state.llm.max_model_len - len(cast(PromptIds, ids))
    return replace(request, prompt=ids, params=within(request.params, room))


def told(sequence: CompletionOutput) -> dict[str, Any]:
    """Return what participants say of a sequence, by their names, as plain data."""
    parts = sequence.parts
    return {name: msgspec.to_builtins(value, enc_hook=_encoded) for name, value in parts.items()} if parts else {}


def _encoded(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(f"a {type(value).__name__} is no plain data")
    file = io.BytesIO()
    np.save(file, value, allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode()
