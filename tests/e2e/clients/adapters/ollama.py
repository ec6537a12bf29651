"""ollama: Ollama's own API, which `--route ollama` serves."""

from __future__ import annotations

import json

from script import AGAIN, CHAT_TOOL, CITY_SCHEMA, QUESTION, SAID_CITY


def user(text):
    return {"role": "user", "content": text}


class Chat:
    def __init__(self, names):
        self._client = names["client"]

    def ask(self, text, streamed):
        answer = self._client.chat("MODEL", [user(text)], stream=streamed)
        return [part.message.content for part in (answer if streamed else [answer]) if part.message.content]

    def loop(self, tool, streamed):
        messages, said = [], []
        for question in (QUESTION, AGAIN):
            messages.append(user(question))
            while True:
                answer = self._client.chat("MODEL", messages, tools=[CHAT_TOOL], stream=streamed)
                parts = [part.message for part in (answer if streamed else [answer])]
                text = "".join(part.content or "" for part in parts)
                calls = [call for part in parts for call in part.tool_calls or ()]
                messages.append({"role": "assistant", "content": text, "tool_calls": calls})
                results = [(call.function.name, tool.call(dict(call.function.arguments))) for call in calls]
                messages += [{"role": "tool", "tool_name": name, "content": content} for name, content in results]
                if not calls:
                    break
            said.append(text)
        return said

    def structured(self):
        answer = self._client.chat("MODEL", [user(SAID_CITY)], format=CITY_SCHEMA)
        return {"format": json.loads(answer.message.content)}


APIS = {"chat": Chat}
