"""instructor: OpenAI's chat API, whose answers are objects."""

from __future__ import annotations

import instructor
from pydantic import BaseModel
from script import CALLED_CITY, SAID_CITY, SCRIPT


class City(BaseModel):
    city: str
    degrees: int


def user(text):
    return [{"role": "user", "content": text}]


def form(script):
    return {"model": "MODEL", "messages": user(SCRIPT + script), "response_model": City, "max_retries": 0}


class Chat:
    def __init__(self, names):
        self._openai = names["openai"]

    def ask(self, text, streamed):
        client = instructor.from_openai(self._openai)
        answer = client.create(model="MODEL", messages=user(text), response_model=None, max_retries=0, stream=streamed)
        if not streamed:
            return [answer.choices[0].message.content]
        return [choice.delta.content for chunk in answer for choice in chunk.choices if choice.delta.content]

    def structured(self):
        called = self._client(instructor.Mode.TOOLS)
        said = self._client(instructor.Mode.JSON_SCHEMA)
        return {
            "TOOLS": called.create(**form(CALLED_CITY % "City")).model_dump(),
            "TOOLS in parts": list(called.create_partial(**form(CALLED_CITY % "PartialCity")))[-1].model_dump(),
            "JSON_SCHEMA": said.create(**form(SAID_CITY)).model_dump(),
            "JSON_SCHEMA in parts": list(said.create_partial(**form(SAID_CITY)))[-1].model_dump(),
        }

    def _client(self, mode):
        return instructor.from_openai(self._openai, mode=mode)


APIS = {"chat": Chat}
