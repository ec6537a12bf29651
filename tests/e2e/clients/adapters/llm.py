"""llm: OpenAI's chat API, by its file of further models."""

from __future__ import annotations

import json
import os
from pathlib import Path

from script import AGAIN, CITY_SCHEMA, QUESTION, SAID_CITY


def settings(text):
    """Write the file that `text` is, and the key that it names, where llm looks for them."""
    folder = Path(os.environ["LLM_USER_PATH"])
    (folder / "extra-openai-models.yaml").write_text(text, encoding="utf-8")
    (folder / "keys.json").write_text(json.dumps({"core": os.environ["CLIENT_KEY"]}), encoding="utf-8")
    import llm  # reads the folder

    return {"model": llm.get_model("MODEL")}


class Chat:
    def __init__(self, names):
        self._model = names["model"]

    def ask(self, text, streamed):
        return [piece for piece in self._model.prompt(text, stream=streamed) if piece]

    def loop(self, tool, streamed):
        def warmth(city: str) -> str:
            """How warm a city is."""
            return tool(city)

        talk = self._model.conversation(tools=[warmth])
        return [list(talk.chain(question, stream=streamed).responses())[-1].text() for question in (QUESTION, AGAIN)]

    def structured(self):
        return {"schema": json.loads(self._model.prompt(SAID_CITY, schema=CITY_SCHEMA).text())}


APIS = {"chat": Chat}
