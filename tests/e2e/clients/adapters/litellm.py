"""litellm: OpenAI's chat API by its `openai/` prefix."""

from __future__ import annotations

import json

import litellm
from script import CHAT_TOOL, CITY_SCHEMA, SAID_CITY, chat_loop


class Chat:
    def __init__(self, names):
        self._fields = {**names["server"], "max_retries": 0}

    def ask(self, text, streamed):
        messages = [{"role": "user", "content": text}]
        answer = litellm.completion(messages=messages, stream=streamed, **self._fields)
        if not streamed:
            return [answer.choices[0].message.content]
        return [chunk.choices[0].delta.content for chunk in answer if chunk.choices[0].delta.content]

    def loop(self, tool, streamed):
        def ask(messages):
            answer = litellm.completion(messages=messages, stream=streamed, tools=[CHAT_TOOL], **self._fields)
            if streamed:
                answer = litellm.stream_chunk_builder(list(answer), messages=messages)
            return answer.choices[0].message.model_dump()

        return chat_loop(ask, tool)

    def structured(self):
        form = {"type": "json_schema", "json_schema": {"name": "City", "schema": CITY_SCHEMA, "strict": True}}
        messages = [{"role": "user", "content": SAID_CITY}]
        answer = litellm.completion(messages=messages, response_format=form, **self._fields)
        return {"response_format": json.loads(answer.choices[0].message.content)}


APIS = {"chat": Chat}
