"""pydantic-ai: OpenAI's chat and responses, and Anthropic's messages."""

from __future__ import annotations

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from script import AGAIN, CALLED_CITY, QUESTION, SAID_CITY, wait


class City(BaseModel):
    city: str
    degrees: int


class Agents:
    def __init__(self, model, forms=(NativeOutput, ToolOutput)):
        self._model, self._forms = model, forms

    def ask(self, text, streamed):
        agent = Agent(self._model)
        if not streamed:
            return [agent.run_sync(text).output]
        return wait(self._pieces(agent, text))

    def loop(self, tool, streamed):
        async def warmth(city: str) -> str:
            """How warm a city is."""
            return tool(city)

        return wait(self._converse(Agent(self._model, tools=[warmth]), streamed))

    def structured(self):
        scripts = {NativeOutput: SAID_CITY, ToolOutput: CALLED_CITY % "final_result"}
        return {
            form.__name__: Agent(self._model, output_type=form(City)).run_sync(scripts[form]).output.model_dump()
            for form in self._forms
        }

    async def _pieces(self, agent, text):
        async with agent.run_stream(text) as answer:
            return [piece async for piece in answer.stream_text(delta=True, debounce_by=None)]

    async def _converse(self, agent, streamed):
        said, history = [], []
        for question in (QUESTION, AGAIN):
            if streamed:
                async with agent.run_stream(question, message_history=history) as answer:
                    said.append(await answer.get_output())
            else:
                answer = await agent.run(question, message_history=history)
                said.append(answer.output)
            history = answer.all_messages()
        return said


APIS = {
    "chat": lambda names: Agents(names["chat"]),
    "responses": lambda names: Agents(names["responses"]),
    "messages": lambda names: Agents(
        names["messages"], [ToolOutput]
    ),  # it knows by their names which models have the other
}
