"""Answers as route plugins see them: a generation whose outputs are read before they are handed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.api.parsers import ParseEvent, Text
from core.api.serving import AnswerRequest, ChatRequest, Delta, Finish, More, Take, TextRequest, Timings, Usage
from core.api.serving import TokenScore as Score
from core.engine.participants.grammars import Grammar, schema_grammar, structured_output
from core.engine.sampling import SamplingParams
from core.frontend.answering.chat import ChatAnswer
from core.frontend.answering.parsing import thinking_switches
from core.frontend.answering.reader import AnswerReader
from core.frontend.conversation import Conversation
from core.frontend.request import GenerationRequest, sampling_params, spelling
from core.frontend.results import CompletionOutput, RequestOutput
from core.server.caller import caller_of
from core.server.entry import as_asked, open_chat, open_generation, within
from core.server.generation import Generation, new_id
from core.server.logprobs import ShownTokens, chat_logprobs
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

    def call_id(self, name: str, number: int) -> str:
        """Return the id of a call. Raises `TypeError`: there are none without a parser."""
        if self.chat is None:
            raise TypeError("a prompt that is continued as it is has no calls")
        return self.chat.call_id(name, number)

    async def run(self, take: Take, more: More | None = None) -> None:
        """Generate, and give everything to `take`. Raises `RequestError`, and what `take` and `more` raise."""

        def given(_: int, output: RequestOutput) -> bool:
            return take([self._delta(sequence) for sequence in output.outputs])

        await self.generation.run(given, more)

    def _delta(self, sequence: CompletionOutput) -> Delta:
        reason = sequence.finish_reason
        finish = None if reason is None else Finish(reason, sequence.stop_reason)
        scores = self._scores(sequence) if sequence.logprobs else ()
        return Delta(sequence.index, self._read(sequence), sequence.token_ids, finish, scores)

    def _read(self, sequence: CompletionOutput) -> Sequence[ParseEvent]:
        if self.chat is None:
            return [Text(sequence.text)] if sequence.text else []
        reader = self._readers.get(sequence.index)
        if reader is None:
            reader = self._readers[sequence.index] = self.chat.reader()
        return reader.read(sequence)

    def _scores(self, sequence: CompletionOutput) -> list[Score]:
        params = self.generation.params
        if self._tokens is None:
            tokenizer = self.generation.state.llm.tokenizer
            self._tokens = ShownTokens(tokenizer, skip_special=params.skip_special_tokens)
        entries = chat_logprobs(sequence.token_ids, sequence.logprobs or (), self._tokens, params.logprobs or 0)
        return [_score(entry, [_score(one) for one in entry["top_logprobs"]]) for entry in entries]


def _score(entry: dict[str, Any], top: list[Score] | None = None) -> Score:
    return Score(entry["token"], entry["bytes"], entry["logprob"], top or ())


async def open_answer(asked: ChatRequest | TextRequest, state: ServerState, prefix: str) -> ServedAnswer:
    """Check, admit and render what a plugin asks for. Raises `RequestError`."""
    if isinstance(asked, ChatRequest):
        wanted = chat_request(asked, state)
        chat = await open_chat(state, wanted, new_id(prefix), settle=within if asked.fitted else as_asked)
        return ServedAnswer(chat.generation, chat.answer, chat.generation.params is not chat.answer.params)
    params, prompt = _params(asked, state), asked.prompt
    ids = await state.tokenize(prompt) if isinstance(prompt, str) else list(prompt)
    most = within(params, state.llm.max_model_len - len(ids)) if asked.fitted else params
    generation = open_generation(state, [_request(asked, ids, most)], new_id(prefix))
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


def _params(asked: AnswerRequest, state: ServerState) -> SamplingParams:
    fields = dict(asked.sampling)
    if asked.structured is not None:
        fields["grammar"] = _grammar(asked.structured, asked.names)
    with spelling(asked.names):
        return sampling_params(fields, state.defaults, state.llm.max_model_len)


def _grammar(structured: Mapping[str, Any], names: Mapping[str, str]) -> Grammar | None:
    if set(structured) == {"json"}:
        return schema_grammar(structured["json"], param=names.get("structured.json", "structured.json"))
    return structured_output(structured, param=names.get("structured", "structured"))


def _request(asked: AnswerRequest, prompt: Conversation | list[int], params: SamplingParams) -> GenerationRequest:
    return GenerationRequest(
        prompt=prompt,
        params=params,
        priority=asked.priority,
        cache_salt=asked.cache_salt,
        caller=caller_of(asked.user),
        names=asked.names,
    )
