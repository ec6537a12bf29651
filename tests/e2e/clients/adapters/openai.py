"""openai: the chat and the responses API."""

from __future__ import annotations

from pydantic import BaseModel
from script import AGAIN, CHAT_TOOL, QUESTION, SAID_CITY, WARMTH, chat_loop

RESPONSES_TOOL = {"type": "function", "strict": False, **WARMTH}


class City(BaseModel):
    city: str
    degrees: int


def user(text):
    return [{"role": "user", "content": text}]


class Chat:
    def __init__(self, names):
        self._chat = names["client"].with_options(max_retries=0).chat.completions

    def ask(self, text, streamed):
        answer = self._chat.create(model="MODEL", messages=user(text), stream=streamed)
        if not streamed:
            return [answer.choices[0].message.content]
        return [choice.delta.content for chunk in answer for choice in chunk.choices if choice.delta.content]

    def loop(self, tool, streamed):
        fields = {"model": "MODEL", "tools": [CHAT_TOOL]}

        def ask(messages):
            if not streamed:
                return self._chat.create(messages=messages, **fields).choices[0].message.model_dump()
            with self._chat.stream(messages=messages, **fields) as stream:
                return stream.get_final_completion().choices[0].message.model_dump()

        return chat_loop(ask, tool)

    def structured(self):
        fields = {"model": "MODEL", "messages": user(SAID_CITY), "response_format": City}
        with self._chat.stream(**fields) as stream:
            streamed = stream.get_final_completion()
        answers = {"parse": self._chat.parse(**fields), "stream": streamed}
        return {name: answer.choices[0].message.parsed.model_dump() for name, answer in answers.items()}


class Responses:
    def __init__(self, names):
        self._responses = names["client"].with_options(max_retries=0).responses

    def ask(self, text, streamed):
        answer = self._responses.create(model="MODEL", input=text, stream=streamed)
        if not streamed:
            return [answer.output_text]
        return [event.delta for event in answer if event.type == "response.output_text.delta"]

    def loop(self, tool, streamed):
        items, said = [], []
        for question in (QUESTION, AGAIN):
            items += user(question)
            while True:
                answer = self._answer(items, streamed)
                items += [item.model_dump() for item in answer.output]
                calls = [item for item in answer.output if item.type == "function_call"]
                results = ((call.call_id, tool.call(call.arguments)) for call in calls)
                items += [{"type": "function_call_output", "call_id": name, "output": text} for name, text in results]
                if not calls:
                    break
            said.append(answer.output_text)
        return said

    def structured(self):
        fields = {"model": "MODEL", "input": SAID_CITY, "text_format": City}
        with self._responses.stream(**fields) as stream:
            streamed = stream.get_final_response()
        answers = {"parse": self._responses.parse(**fields), "stream": streamed}
        return {name: answer.output_parsed.model_dump() for name, answer in answers.items()}

    def _answer(self, items, streamed):
        fields = {"model": "MODEL", "tools": [RESPONSES_TOOL], "input": items}
        if not streamed:
            return self._responses.create(**fields)
        with self._responses.stream(**fields) as stream:
            return stream.get_final_response()


APIS = {"chat": Chat, "responses": Responses}
