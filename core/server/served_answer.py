"""Answers as route plugins see them: a generation whose outputs are read before they are handed on."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
import numpy as np

from core.api.errors import RequestError
from core.api.parsers import Text
from core.api.serving import AnswerRequest, ChatRequest, Delta, Finish, More, Take, TextRequest, Timings, Usage
from core.api.serving import TokenScore as Score
from core.engine.participants.grammars import Grammar, schema_grammar, structured_output
from core.engine.sampling import SamplingParams
from core.frontend.answering.chat import ChatAnswer
from core.frontend.answering.parsing import thinking_switches
from core.frontend.answering.reader import AnswerReader
from core.frontend.beams.outputs import BeamRules
from core.frontend.conversation import Conversation
from core.frontend.prompts import PromptIds, PromptInput, Truncation, check_ids, prompt_ids
from core.frontend.request import GenerationRequest, sampling_params, spelling
from core.frontend.results import CompletionOutput, RequestOutput
from core.server.caller import caller_of
from core.server.entry import as_asked, open_chat, open_generation, within
from core.server.errors import as_api_error, log_unexpected
from core.server.generation import Generation, new_id
from core.server.scores import ScoredTokens
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


class ServedPrompt:
    """`core.api.serving.Prompt` over the first of its outputs, and the one that brings scores."""

    __slots__ = ("_scores", "_tokens", "output")

    def __init__(self, output: RequestOutput, tokens: ScoredTokens) -> None:
        self.output, self._tokens = output, tokens
        self._scores: list[Score | None] | None = None

    @property
    def ids(self) -> list[int]:
        """Its tokens."""
        return self.output.prompt_token_ids

    @property
    def text(self) -> str:
        """As it was given, or what its tokens say."""
        given, tokenizer = self.output.prompt, self._tokens.tokenizer
        return tokenizer.decode(self.output.prompt_ids, skip_special_tokens=False) if given is None else given

    @property
    def scores(self) -> list[Score | None]:
        """Of its tokens, as far as they were asked for and have come."""
        if self._scores is None:
            if self.output.prompt_logprobs is None:
                return []
            tokens, top = self._tokens, self._tokens.params.prompt_logprobs or 0
            scored = zip(self.output.prompt_ids, self.output.prompt_logprobs, strict=True)
            self._scores = [None if one is None else tokens.one(token, one, top) for token, one in scored]
        return self._scores


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
    shown, admitted = name, name is not None
    name = name or new_id(prefix)
    if turn:  # names must differ, as the engine may still be ending the one before
        name = f"{name}-{turn}"
    if isinstance(asked, ChatRequest):
        wanted, settle = chat_request(asked, state), within if asked.fitted else as_asked
        chat = await open_chat(state, wanted, name, interval=asked.interval, admitted=admitted, settle=settle)
        chat.generation.id = shown or chat.generation.id  # what clients, and operators, know all of them by
        return ServedAnswer(chat.generation, chat.answer, chat.generation.params is not chat.answer.params, admitted)
    requests = text_requests(asked, state)
    if asked.fitted:
        fitted = [await _fitted(one, state) for one in requests]
    else:
        fitted = requests
    generation = open_generation(
        state, fitted, name, interval=asked.interval, admitted=admitted, prompt_only=asked.only_prompt
    )
    generation.id = shown or generation.id
    return ServedAnswer(generation, None, fitted[0].params is not requests[0].params, admitted)


def generation_requests(asked: ChatRequest | TextRequest, state: ServerState) -> list[GenerationRequest]:
    """Return what a plugin asks for, prompt by prompt. Raises `RequestError`, in the API's own field names."""
    return [chat_request(asked, state)] if isinstance(asked, ChatRequest) else text_requests(asked, state)


def text_requests(asked: TextRequest, state: ServerState) -> list[GenerationRequest]:
    """Return what a plugin asks for, prompt by prompt. Raises `RequestError`, in the API's own field names."""
    params = _params(asked, state, **({"max_tokens": 1} if asked.only_prompt else {}))
    return [_request(asked, _prompt(prompt, asked, state), params) for prompt in asked.prompts]


def _prompt(prompt: str | Sequence[int], asked: TextRequest, state: ServerState) -> PromptInput:
    if isinstance(prompt, str):
        return prompt if asked.add_special_tokens else {"prompt": prompt, "add_special_tokens": False}
    check_ids(prompt, state.llm.tokenizer.vocab_size, asked.names.get("prompt", "prompt"))
    return prompt_ids(prompt)


async def _fitted(request: GenerationRequest, state: ServerState) -> GenerationRequest:
    """Return a request with its tokens, which asks for no more than there is room for behind them."""
    text, ids = request.prompt, request.prompt
    if isinstance(text, str):
        ids = prompt_ids(await state.tokenize(text))
    elif isinstance(text, Mapping):
        ids = prompt_ids(await state.tokenize(text["prompt"], add_special_tokens=False))
    room = state.llm.max_model_len - len(cast(PromptIds, ids))
    return replace(request, prompt=ids, params=within(request.params, room))


def chat_request(asked: ChatRequest, state: ServerState) -> GenerationRequest:
    """Return what a plugin asks for about a conversation. Raises `RequestError`, in the API's own field names."""
    params = _params(asked, state)
    thinking = {} if asked.thinking is None else thinking_switches(asked.thinking)
    with spelling(asked.names):
        chat = Conversation(
            messages=asked.messages,
            tools=asked.tools,
            tool_choice=asked.tool_choice,
            parallel_tool_calls=asked.parallel_tool_calls,
            documents=asked.documents,
            add_generation_prompt=asked.opened and not asked.continued,
            continue_final_message=asked.continued,
            add_special_tokens=asked.add_special_tokens,
            template=asked.template,
            template_args={**thinking, **asked.template_args},
        )
    return _request(asked, chat, params)


def _params(asked: AnswerRequest, state: ServerState, **changes: Any) -> SamplingParams:
    fields = {**asked.sampling, **changes}
    if asked.structured is not None:
        fields["grammar"] = grammar_of(asked.structured, asked.names)
    defaults = state.defaults if asked.beams is None else {}  # which are for sampling
    with spelling(asked.names):
        return sampling_params(fields, defaults, state.llm.max_model_len)


def grammar_of(structured: Mapping[str, Any], names: Mapping[str, str]) -> Grammar | None:
    """Return what the text must be; a kind that stands in a field of its own is called by that."""
    whole = names.get("structured", "structured")
    if set(structured) == {"json"}:
        return schema_grammar(structured["json"], param=names.get("structured.json", f"{whole}.json"))
    grammar = structured_output(structured, param=whole)
    own = next((names[field] for kind in structured if (field := f"structured.{kind}") in names), None)
    return grammar if grammar is None or own is None else grammar.replace(param=own)


def _request(asked: AnswerRequest, prompt: Conversation | PromptInput, params: SamplingParams) -> GenerationRequest:
    with spelling(asked.names):
        return GenerationRequest(
            prompt=prompt,
            params=params,
            priority=asked.priority,
            cache_salt=asked.cache_salt,
            request_id=asked.request_id,
            caller=caller_of(asked.user),
            truncation=_truncation(asked),
            beams=_beams(asked, params),
            names=asked.names,
        )


def _truncation(asked: AnswerRequest) -> Truncation | None:
    cut = asked.truncate_prompt_tokens
    if cut is not None:
        return Truncation(tokens=cut, side=asked.truncation_side or "left")
    if asked.truncation_side is not None:
        raise RequestError("truncation_side needs truncate_prompt_tokens.", param="truncation_side")
    return None


def _beams(asked: AnswerRequest, params: SamplingParams) -> BeamRules | None:
    if asked.beams is None:
        return None
    rules = BeamRules(**{name: value for name, value in asked.beams.items() if value is not None})
    rules.params(params)  # refuses what beams do not follow
    return rules


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
