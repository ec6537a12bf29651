"""From the fields of chat bodies to a `Conversation`."""

from __future__ import annotations

from typing import Any

from core.api.errors import RequestError
from core.frontend.conversation import Conversation
from core.server.openai.protocol import ChatBody, TokenizeBody


def conversation(body: ChatBody | TokenizeBody, **fields: Any) -> Conversation:
    """Return the conversation of a body. Raises `RequestError`.

    Args:
        fields: Of `Conversation`, that only some bodies have.
    """
    continued = bool(body.continue_final_message)
    if continued and body.add_generation_prompt:
        said = "continue_final_message and add_generation_prompt exclude each other"
        raise RequestError(said, param="continue_final_message")
    return Conversation(
        messages=body.messages or (),
        tools=body.tools or (),
        documents=body.documents,
        add_generation_prompt=not continued and body.add_generation_prompt is not False,
        continue_final_message=continued,
        template=body.chat_template or None,
        template_args=fields.pop("template_args", None) or body.chat_template_kwargs or {},
        **fields,
    )
