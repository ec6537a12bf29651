"""smolagents: agents that call tools, over OpenAI's chat API. Every answer is a call; `final_answer` is the last."""

from __future__ import annotations

import json
from functools import partial

from script import CALL, CITY_SCHEMA, END, RESULTS, SAID_CITY, SCRIPT, Warmth
from smolagents import LogLevel, ToolCallingAgent
from smolagents import tool as as_tool

FINAL = '<tool_call>\n{"name": "final_answer", "arguments": {"answer": "%s"}}\n</tool_call>'


def user(text):
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


class Chat:
    # It writes words of its own around tasks and results.
    tool = partial(
        Warmth,
        {"Oslo": SCRIPT + RESULTS["Oslo"], "Rome": RESULTS["Rome"], "Cairo": SCRIPT + FINAL % RESULTS["Cairo"] + END},
    )

    def __init__(self, names):
        self._model = names["model"]

    def ask(self, text, streamed):
        if not streamed:
            return [self._model.generate(user(text)).content]
        return [delta.content for delta in self._model.generate_stream(user(text)) if delta.content]

    def loop(self, tool, streamed):
        @as_tool
        def warmth(city: str) -> str:
            """How warm a city is.

            Args:
                city: The city.
            """
            return tool(city)

        # With one thread the calls are made in their order; the results are sent in any.
        agent = ToolCallingAgent(
            [warmth], self._model, stream_outputs=streamed, max_tool_threads=1, verbosity_level=LogLevel.OFF
        )
        questions = (CALL % "Oslo", FINAL % "Cairo is warmer.")
        return [agent.run(SCRIPT + question, reset=first == 0) for first, question in enumerate(questions)]

    def structured(self):
        form = {"type": "json_schema", "json_schema": {"name": "City", "schema": CITY_SCHEMA, "strict": True}}
        return {"response_format": json.loads(self._model.generate(user(SAID_CITY), response_format=form).content)}


APIS = {"chat": Chat}
