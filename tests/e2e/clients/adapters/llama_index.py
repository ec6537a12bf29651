"""llama-index: OpenAI's chat API by `OpenAILike`."""

from __future__ import annotations

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.workflow import Context
from pydantic import BaseModel
from script import AGAIN, CALLED_CITY, QUESTION, SAID_CITY, wait


class City(BaseModel):
    city: str
    degrees: int


class Chat:
    def __init__(self, names):
        self._llm = names["llm"].model_copy(update={"max_retries": 0})

    def ask(self, text, streamed):
        messages = [ChatMessage(role="user", content=text)]
        if not streamed:
            return [self._llm.chat(messages).message.content]
        return [part.delta for part in self._llm.stream_chat(messages) if part.delta]

    def loop(self, tool, streamed):
        async def warmth(city: str) -> str:
            """How warm a city is."""
            return tool(city)

        async def converse():
            agent = FunctionAgent(tools=[warmth], llm=self._llm, streaming=streamed)
            talk = Context(agent)
            return [str(await agent.run(question, ctx=talk)) for question in (QUESTION, AGAIN)]

        return wait(converse())

    def structured(self):
        scripts = {True: SAID_CITY, False: CALLED_CITY % "City"}
        given = {}
        for native, script in scripts.items():
            llm = self._llm.model_copy(update={"should_use_structured_outputs": native})
            answer = llm.as_structured_llm(City).chat([ChatMessage(role="user", content=script)])
            given["json_schema" if native else "function"] = answer.raw.model_dump()
        return given


APIS = {"chat": Chat}
