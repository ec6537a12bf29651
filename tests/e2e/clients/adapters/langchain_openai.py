"""langchain-openai: the chat and the responses API."""

from __future__ import annotations

from adapters.langchain import ChatModel

APIS = {
    "chat": lambda names: ChatModel(names["model"]),
    "responses": lambda names: ChatModel(names["model"].model_copy(update={"use_responses_api": True})),
}
