"""How a conversation is answered: what the answer is held to, and what reads it; the same for every front end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.api.parsers import ParserContext
from core.api.sampling_params import SamplingParams
from core.api.tokenizer import Tokenizer
from core.frontend.answering.forcing import enforced
from core.frontend.answering.parsing import AnswerParser, calls_before
from core.frontend.answering.reader import AnswerReader
from core.frontend.answering.thinking import after_thinking
from core.frontend.conversation import Conversation


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The answer to a conversation, before it begins.

    Attributes:
        params: With what is enforced of the answer.
        parser: Reads the answer; None passes its text on as it is.
        context: What parsers are made with.
    """

    chat: Conversation
    params: SamplingParams
    parser: AnswerParser | None
    context: ParserContext

    def reader(self) -> AnswerReader:
        """Return what turns one sequence's outputs into parse events; one reader per sequence."""
        parser = self.parser.make(self.context) if self.parser else None
        owner = self.parser.owner if self.parser else ""
        return AnswerReader(parser, calls=bool(self.chat.offered), owner=owner)

    def call_id(self, name: str, number: int) -> str:
        """Return the id of the answer's `number`-th call, of a function; the conversation's numbers go on."""
        if self.parser is None:
            raise TypeError("without a parser there are no calls")
        return self.parser.id_of(name, calls_before(self.chat.messages) + number)


def chat_answer(
    chat: Conversation,
    ids: Sequence[int],
    params: SamplingParams,
    parser: AnswerParser | None,
    tokenizer: Tokenizer,
    *,
    defaults: Mapping[str, Any],
    grammars: frozenset[str] | None,
) -> ChatAnswer:
    """Settle what the answer to a conversation is held to, and what reads it.

    Args:
        ids: The conversation's token ids.
        defaults: Template variables that hold where the conversation sets none.
        grammars: Kinds of grammar that the engine knows; None where nobody says.

    Raises:
        RequestError: A call is demanded that cannot be enforced.
    """
    context = ParserContext()
    if parser is not None:
        context = parser.context(tokenizer, ids, chat.offered, {**defaults, **chat.template_args})
    held, reads = enforced(chat, params, parser, context, grammars=grammars)
    if held.grammar is params.grammar:  # that of calls knows about the thinking itself
        held = after_thinking(held, parser, context)
    if parser is not None and parser.special_tokens:  # its tags must stay in the text
        held = held.replace(skip_special_tokens=False)
    return ChatAnswer(chat, held, reads, context)
