"""What is common to the chat models of langchain."""

from __future__ import annotations

from langchain_core.messages import HumanMessage, ToolMessage
from pydantic import BaseModel
from script import AGAIN, CALLED_CITY, CHAT_TOOL, QUESTION, SAID_CITY


class City(BaseModel):
    city: str
    degrees: int


class ChatModel:
    def __init__(self, model):
        self._model = model.model_copy(update={"max_retries": 0})

    def ask(self, text, streamed):
        if not streamed:
            return [self._model.invoke(text).text]
        return [chunk.text for chunk in self._model.stream(text) if chunk.text]

    def loop(self, tool, streamed):
        model, messages, said = self._model.bind_tools([CHAT_TOOL]), [], []
        for question in (QUESTION, AGAIN):
            messages.append(HumanMessage(question))
            while True:
                if streamed:
                    first, *others = model.stream(messages)
                    answer = sum(others, first)
                else:
                    answer = model.invoke(messages)
                messages.append(answer)
                calls = answer.tool_calls
                messages += [ToolMessage(tool.call(call["args"]), tool_call_id=call["id"]) for call in calls]
                if not calls:
                    break
            said.append(answer.text)
        return said

    def structured(self):
        scripts = {"json_schema": SAID_CITY, "function_calling": CALLED_CITY % "City"}
        return {
            method: self._model.with_structured_output(City, method=method).invoke(script).model_dump()
            for method, script in scripts.items()
        }
