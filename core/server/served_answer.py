"""Answers as route plugins see them: a generation whose outputs are read before they are handed on."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.api.serving import ChatRequest, Delta, Finish, More, Take, Usage
from core.engine.participants.grammars import schema_grammar
from core.frontend.answering.parsing import thinking_switches
from core.frontend.answering.reader import AnswerReader
from core.frontend.conversation import Conversation
from core.frontend.request import GenerationRequest, sampling_params, spelling
from core.frontend.results import CompletionOutput, RequestOutput
from core.server.caller import caller_of
from core.server.entry import OpenChat
from core.server.generation import Generation
from core.server.state import ServerState


@dataclass(slots=True)
class ServedAnswer:
    """`core.api.serving.Answer` over a conversation that is about to be answered."""

    chat: OpenChat
    _readers: dict[int, AnswerReader] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its name."""
        return self._generation.id

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return self._generation.usage

    @property
    def fitted(self) -> bool:
        """Whether the limit of tokens was lowered to what the model's length leaves."""
        return self._generation.params is not self.chat.answer.params

    @property
    def _generation(self) -> Generation:
        return self.chat.generation

    async def run(self, take: Take, more: More | None = None) -> None:
        """Generate, and give everything to `take`. Raises `RequestError`, and what `take` and `more` raise."""

        def given(_: int, output: RequestOutput) -> bool:
            return take([self._delta(sequence) for sequence in output.outputs])

        await self._generation.run(given, more)

    def _delta(self, sequence: CompletionOutput) -> Delta:
        reader = self._readers.get(sequence.index)
        if reader is None:
            reader = self._readers[sequence.index] = self.chat.answer.reader()
        reason = sequence.finish_reason
        finish = None if reason is None else Finish(reason, sequence.stop_reason)
        return Delta(sequence.index, reader.read(sequence), sequence.token_ids, finish)


def generation_request(asked: ChatRequest, state: ServerState) -> GenerationRequest:
    """Return what a plugin asks for. Raises `RequestError`, in the API's own field names."""
    thinking = {} if asked.thinking is None else thinking_switches(asked.thinking)
    fields = dict(asked.sampling)
    if asked.schema is not None:
        fields["grammar"] = schema_grammar(asked.schema, param=asked.names.get("schema", "schema"))
    with spelling(asked.names):
        params = sampling_params(fields, state.defaults, state.llm.max_model_len)
        chat = Conversation(
            messages=asked.messages,
            tools=asked.tools,
            tool_choice=asked.tool_choice,
            parallel_tool_calls=asked.parallel_tool_calls,
            add_generation_prompt=not asked.continued,
            continue_final_message=asked.continued,
            template_args={**thinking, **asked.template_args},
        )
        return GenerationRequest(
            prompt=chat,
            params=params,
            priority=asked.priority,
            cache_salt=asked.cache_salt,
            caller=caller_of(asked.user),
            names=asked.names,
        )
