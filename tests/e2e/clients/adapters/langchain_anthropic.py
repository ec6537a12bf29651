"""langchain-anthropic: the messages API."""

from __future__ import annotations

from adapters.langchain import ChatModel

APIS = {"messages": lambda names: ChatModel(names["model"])}
