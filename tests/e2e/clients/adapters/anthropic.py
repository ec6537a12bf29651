"""anthropic: the messages API."""

from __future__ import annotations

from pydantic import BaseModel
from script import AGAIN, CITY_SCHEMA, QUESTION, SAID_CITY, WARMTH

TOOL = {"name": WARMTH["name"], "description": WARMTH["description"], "input_schema": WARMTH["parameters"]}


class City(BaseModel):
    city: str
    degrees: int


class Messages:
    def __init__(self, names):
        self._messages = names["client"].with_options(max_retries=0).messages

    def ask(self, text, streamed):
        fields = {"model": "MODEL", "max_tokens": 400, "messages": [{"role": "user", "content": text}]}
        if not streamed:
            return [block.text for block in self._messages.create(**fields).content]
        with self._messages.stream(**fields) as stream:
            return list(stream.text_stream)

    def loop(self, tool, streamed):
        turns, said = [], []
        for question in (QUESTION, AGAIN):
            turns.append({"role": "user", "content": question})
            while True:
                answer = self._answer(turns, streamed)
                turns.append({"role": "assistant", "content": answer.content})
                calls = [block for block in answer.content if block.type == "tool_use"]
                results = [(call.id, tool.call(call.input)) for call in calls]
                if not calls:
                    break
                blocks = [{"type": "tool_result", "tool_use_id": name, "content": text} for name, text in results]
                turns.append({"role": "user", "content": blocks})
            said.append("".join(block.text for block in answer.content if block.type == "text"))
        return said

    def structured(self):
        fields = {"model": "MODEL", "max_tokens": 400, "messages": [{"role": "user", "content": SAID_CITY}]}
        parsed = self._messages.parse(output_format=City, **fields).parsed_output
        form = {"format": {"type": "json_schema", "schema": CITY_SCHEMA}}
        created = self._messages.create(output_config=form, **fields).content[0].text
        return {"parse": parsed.model_dump(), "output_config": City.model_validate_json(created).model_dump()}

    def _answer(self, turns, streamed):
        fields = {"model": "MODEL", "max_tokens": 400, "messages": turns, "tools": [TOOL]}
        if not streamed:
            return self._messages.create(**fields)
        with self._messages.stream(**fields) as stream:
            return stream.get_final_message()


APIS = {"messages": Messages}
