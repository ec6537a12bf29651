"""openai-agents: the chat and the responses API."""

from __future__ import annotations

import agents
from pydantic import BaseModel
from script import AGAIN, QUESTION, SAID_CITY, wait


class City(BaseModel):
    city: str
    degrees: int


class Agents:
    def __init__(self, model):
        self._model = model

    def ask(self, text, streamed):
        agent = agents.Agent("words", model=self._model)
        if not streamed:
            return [wait(agents.Runner.run(agent, text)).final_output]
        return wait(self._pieces(agent, text))

    def loop(self, tool, streamed):
        @agents.function_tool
        def warmth(city: str) -> str:
            """How warm a city is."""
            return tool(city)

        return wait(self._converse(agents.Agent("scripted", model=self._model, tools=[warmth]), streamed))

    def structured(self):
        agent = agents.Agent("city", model=self._model, output_type=City)
        return {"output_type": wait(agents.Runner.run(agent, SAID_CITY)).final_output.model_dump()}

    async def _pieces(self, agent, text):
        events = agents.Runner.run_streamed(agent, text).stream_events()
        raw = [event.data async for event in events if event.type == "raw_response_event"]
        return [data.delta for data in raw if data.type == "response.output_text.delta"]

    async def _converse(self, agent, streamed):
        said, items = [], []
        for question in (QUESTION, AGAIN):
            items = [*items, {"role": "user", "content": question}]
            if streamed:
                answer = agents.Runner.run_streamed(agent, items)
                async for _ in answer.stream_events():
                    continue
            else:
                answer = await agents.Runner.run(agent, items)
            said.append(answer.final_output)
            items = answer.to_input_list()
        return said


APIS = {"chat": lambda names: Agents(names["chat"]), "responses": lambda names: Agents(names["responses"])}
