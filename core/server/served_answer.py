"""Answers as route plugins see them: a generation whose outputs are read before they are handed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.api.parsers import Text
from core.api.serving import AnswerRequest, ChatRequest, Delta, Finish, More, Take, TextRequest, Timings, Usage
from core.api.serving import TokenScore as Score
from core.engine.participants.grammars import Grammar, schema_grammar, structured_output
from core.engine.sampling import SamplingParams
from core.frontend.answering.chat import ChatAnswer
from core.frontend.answering.parsing import thinking_switches
from core.frontend.answering.reader import AnswerReader
from core.frontend.conversation import Conversation
from core.frontend.prompts import PromptIds, check_ids, prompt_ids
from core.frontend.request import GenerationRequest, sampling_params, spelling
from core.frontend.results import CompletionOutput, RequestOutput
from core.server.caller import caller_of
from core.server.entry import as_asked, open_chat, open_generation, within
from core.server.generation import Generation, new_id
from core.server.logprobs import LOWEST, Position, ShownTokens, likeliest
from core.server.state import ServerState


@dataclass(slots=True)
class ServedAnswer:
    """`core.api.serving.Answer` over a generation of one prompt.

    Attributes:
        chat: What reads it; None for a prompt that is continued as it is.
        fitted: The limit of tokens was lowered to what the model's length leaves.
    """

    generation: Generation
    chat: ChatAnswer | None
    fitted: bool
    _prompt: RequestOutput | None = None
    _prompt_scores: list[Score | None] | None = None
    _readers: dict[int, AnswerReader] = field(default_factory=dict)
    _tokens: ShownTokens | None = None

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

    @property
    def prompt_scores(self) -> list[Score | None]:
        """Of the prompt's tokens, as far as they were asked for."""
        if self._prompt_scores is None and self._prompt is not None:
            scored = zip(self._prompt.prompt_token_ids, self._prompt.prompt_logprobs or (), strict=True)
            top = self.generation.params.prompt_logprobs or 0
            scores = [None if one is None else self._scored([token], [one], top)[0] for token, one in scored]
            self._prompt_scores = scores
        return self._prompt_scores or []

    def call_id(self, name: str, number: int) -> str:
        """Return the id of a call. Raises `TypeError`: there are none without a parser."""
        if self.chat is None:
            raise TypeError("a prompt that is continued as it is has no calls")
        return self.chat.call_id(name, number)

    async def run(self, take: Take, more: More | None = None) -> None:
        """Generate, and give everything to `take`. Raises `RequestError`, and what `take` and `more` raise."""
        # Several may have been opened for one request; each counts as waiting from here on.
        self.generation.state.admit(self.generation.sequences)

        def given(_: int, output: RequestOutput) -> bool:
            if output.prompt_logprobs is not None:
                self._prompt = output
            return take([self._delta(sequence) for sequence in output.outputs])

        await self.generation.run(given, more)

    def _delta(self, sequence: CompletionOutput) -> Delta:
        """Return what is new of a sequence. One call a token: what it calls is a good part of what a stream costs."""
        reason, chat = sequence.finish_reason, self.chat
        finish = None if reason is None else Finish(reason, sequence.stop_reason)
        if chat is None:
            return self._continued(sequence, finish)
        reader = self._readers.get(sequence.index)
        if reader is None:
            reader = self._readers[sequence.index] = chat.reader()
        scores = self._scores(sequence) if sequence.logprobs else ()
        return Delta(sequence.index, reader.read(sequence), sequence.token_ids, finish, scores)

    def _continued(self, sequence: CompletionOutput, finish: Finish | None) -> Delta:
        if self.generation.prompt_only:
            return Delta(sequence.index, (), (), finish and Finish("length"))
        events = [Text(sequence.text)] if sequence.text else []
        scores = self._scores(sequence) if sequence.logprobs else ()
        return Delta(sequence.index, events, sequence.token_ids, finish, scores)

    def _scores(self, sequence: CompletionOutput) -> Sequence[Score]:
        return self._scored(sequence.token_ids, sequence.logprobs or (), self.generation.params.logprobs or 0)

    def _scored(self, ids: Sequence[int], positions: Sequence[Position], top: int) -> list[Score]:
        if self._tokens is None:
            state, params = self.generation.state, self.generation.params
            self._tokens = ShownTokens(state.llm.tokenizer, skip_special=params.skip_special_tokens)
        tokens = self._tokens
        return [
            _score(token, position, tokens, [_score(one, position, tokens) for one in likeliest(position, top)])
            for token, position in zip(ids, positions, strict=True)
        ]


def _score(token: int, position: Position, tokens: ShownTokens, top: Sequence[Score] = ()) -> Score:
    entry = position[token]
    return Score(token, tokens.name(token, entry), tokens.bytes(token), max(entry.logprob, LOWEST), top)


async def open_answer(asked: ChatRequest | TextRequest, state: ServerState, prefix: str) -> ServedAnswer:
    """Check, admit and render what a plugin asks for. Raises `RequestError`."""
    if isinstance(asked, ChatRequest):
        wanted = chat_request(asked, state)
        chat = await open_chat(state, wanted, new_id(prefix), settle=within if asked.fitted else as_asked)
        return ServedAnswer(chat.generation, chat.answer, chat.generation.params is not chat.answer.params)
    params, prompt = _params(asked, state, **({"max_tokens": 1} if asked.only_prompt else {})), asked.prompt
    if isinstance(prompt, str):
        ids = prompt_ids(await state.tokenize(prompt))
    else:
        check_ids(prompt, state.llm.tokenizer.vocab_size, asked.names.get("prompt", "prompt"))
        ids = prompt_ids(prompt)
    most = within(params, state.llm.max_model_len - len(ids)) if asked.fitted else params
    generation = open_generation(state, [_request(asked, ids, most)], new_id(prefix), prompt_only=asked.only_prompt)
    return ServedAnswer(generation, None, most is not params)


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
            add_generation_prompt=not asked.continued,
            continue_final_message=asked.continued,
            template_args={**thinking, **asked.template_args},
        )
    return _request(asked, chat, params)


def _params(asked: AnswerRequest, state: ServerState, **changes: Any) -> SamplingParams:
    fields = {**asked.sampling, **changes}
    if asked.structured is not None:
        fields["grammar"] = _grammar(asked.structured, asked.names)
    with spelling(asked.names):
        return sampling_params(fields, state.defaults, state.llm.max_model_len)


def _grammar(structured: Mapping[str, Any], names: Mapping[str, str]) -> Grammar | None:
    if set(structured) == {"json"}:
        return schema_grammar(structured["json"], param=names.get("structured.json", "structured.json"))
    return structured_output(structured, param=names.get("structured", "structured"))


def _request(asked: AnswerRequest, prompt: Conversation | PromptIds, params: SamplingParams) -> GenerationRequest:
    return GenerationRequest(
        prompt=prompt,
        params=params,
        priority=asked.priority,
        cache_salt=asked.cache_salt,
        caller=caller_of(asked.user),
        names=asked.names,
    )
