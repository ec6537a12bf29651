"""Answers to conversations without a server: what is enforced of them, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from core.api.descriptors import ToolParserSpec
from core.api.parsers import ParseEvent, ParserContext, Reasoning, Text, ToolArguments, ToolStart
from core.config.resolved import EngineConfig
from core.engine.sampling import SamplingParams
from core.frontend.answering.forcing import enforced
from core.frontend.answering.parsing import AnswerParser, answer_parser, calls_before
from core.frontend.answering.reader import AnswerReader
from core.frontend.answering.thinking import after_thinking
from core.frontend.conversation import Conversation
from core.frontend.messages import REASONING_NAMES
from core.frontend.model import FrontModel
from core.frontend.results import CompletionOutput
from core.plugins.boot import enter

_TOOL_PARSERS = "core.tool_parsers"


@dataclass(frozen=True, slots=True)
class OpenAnswer:
    """A conversation that is about to be answered.

    Attributes:
        params: With what is enforced of the answer.
        parser: Reads the answer; None passes its text on as it is.
    """

    params: SamplingParams
    chat: Conversation
    context: ParserContext = field(default_factory=ParserContext)
    parser: AnswerParser | None = None

    def message(self, output: CompletionOutput) -> dict[str, Any]:
        """Return what a whole sequence says, as an assistant's message in OpenAI's form."""
        if self.parser is None:
            return {"role": "assistant", "content": output.text}
        parser, before = self.parser, calls_before(self.chat.messages)
        reader = AnswerReader(parser.make(self.context), calls=bool(self.chat.offered))
        return _message(reader.read(output), lambda name, number: parser.id_of(name, before + number))


def chosen_parser(config: EngineConfig) -> AnswerParser | None:
    """Return what `tool_parser` and `reasoning_parser` of the options choose."""
    found = enter(config.plan).impls(_TOOL_PARSERS)
    return answer_parser(
        [(cast(ToolParserSpec, spec), make) for _, spec, make in found], config.options.select.tool_parser
    )


def open_answer(
    model: FrontModel, parser: AnswerParser | None, chat: Conversation, ids: Sequence[int], params: SamplingParams
) -> OpenAnswer:
    """Settle what the answer to a conversation is held to.

    Args:
        ids: The conversation's token ids.

    Raises:
        RequestError: A call is demanded that cannot be enforced.
    """
    context = ParserContext()
    if parser is not None:
        variables = {**model.config.options.model.default_chat_template_kwargs, **chat.template_args}
        context = parser.context(model.tokenizer, ids, chat.offered, variables)
    held, reads = enforced(chat, params, parser, context, grammars=model.plugins.grammars)
    if held.grammar is params.grammar:  # that of calls knows about the thinking itself
        held = after_thinking(held, parser, context)
    if parser is not None and parser.special_tokens:  # its tags must stay in the text
        held = held.replace(skip_special_tokens=False)
    return OpenAnswer(held, chat, context, reads)


def _message(events: Sequence[ParseEvent], call_id: Callable[[str, int], str]) -> dict[str, Any]:
    content, reasoning = "", ""
    calls: dict[int, dict[str, Any]] = {}
    for event in events:
        if isinstance(event, Text):
            content += event.text
        elif isinstance(event, Reasoning):
            reasoning += event.text
        elif isinstance(event, ToolStart):
            function = {"name": event.name, "arguments": ""}
            calls[event.index] = {"id": call_id(event.name, event.index), "type": "function", "function": function}
        elif isinstance(event, ToolArguments):
            calls[event.index]["function"]["arguments"] += event.json
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message.update(dict.fromkeys(REASONING_NAMES, reasoning))
    if calls:
        message |= {"content": content or None, "tool_calls": [calls[index] for index in sorted(calls)]}
    return message
