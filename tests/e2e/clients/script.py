"""What clients ask, what the model answers, and the tool that is called.

The model says what the last message says; of a message with SCRIPT in it, because the client writes words of its own
around what it was given, what follows up to END. So the script of each turn is the question or the result of a tool.
"""

from __future__ import annotations

import asyncio
import json

SCRIPT, END = "SCRIPT:", ":END"
CALL = '<tool_call>\n{"name": "warmth", "arguments": {"city": "%s"}}\n</tool_call>'
QUESTION = f"<think>\nOslo first.\n</think>\n\n{CALL % 'Oslo'}"
RESULTS = {"Oslo": f"{CALL % 'Rome'}\n{CALL % 'Cairo'}", "Rome": "20 degrees", "Cairo": "30 degrees"}
AGAIN = "Cairo is warmer."
WORDS = "Cairo is warmer than Rome, and Rome is warmer than Oslo."
TOO_LONG = "no end " * 2000
CITY = {"city": "Oslo", "degrees": 7}
# What follows the value is refused by whatever holds the answer to a schema.
SAID_CITY = f"{json.dumps(CITY)} and more words"
CALLED_CITY = f'<tool_call>\n{{"name": "%s", "arguments": {json.dumps(CITY)}}}\n</tool_call>'
CITY_SCHEMA = {
    "title": "City",
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
WARMTH = {
    "name": "warmth",
    "description": "How warm a city is.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CHAT_TOOL = {"type": "function", "function": WARMTH}


class Warmth:
    """The tool.

    Attributes:
        asked: Cities that it was called with.
    """

    def __init__(self, results=RESULTS):
        self.asked = []
        self._results = results

    def __call__(self, city):
        self.asked.append(city)
        return self._results[city]

    def call(self, arguments):
        return self(**(json.loads(arguments) if isinstance(arguments, str) else arguments))


def chat_loop(ask, tool):
    """Ask until there are no calls; `ask` returns the message of an answer as the client sends it back."""
    messages, said = [{"role": "user", "content": QUESTION}], []
    for question in (None, AGAIN):
        if question is not None:
            messages.append({"role": "user", "content": question})
        while True:
            message = ask(messages)
            messages.append(message)
            for call in message.get("tool_calls") or ():
                content = tool.call(call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
            if not message.get("tool_calls"):
                break
        said.append(message["content"])
    return said


def wait(coroutine):
    """Run a coroutine in the process's one event loop, whose connections clients keep from call to call."""
    return asyncio.get_event_loop().run_until_complete(coroutine)
