"""The kind, and the layer in front of the model."""

from __future__ import annotations

import asyncio
import json

import pytest
from acme_core_moderation.kinds import MODERATORS
from acme_core_moderation.layer import ModerationLayer
from acme_core_moderation.options import ModerationOptions
from acme_core_moderation.panel import Panel
from acme_core_moderation.spec import ModeratorSpec
from pydantic import ValidationError

from core.api import Chosen, RequestError

SPEC = ModeratorSpec(name="cats", impl="m:Cats", api=1, summary="", categories=("cats",))


class Cats:
    def look(self, text):
        return {"cats": float("cat" in text)}

    def explain(self, category):
        return "cats are not welcome"


PANEL = Panel([Chosen("cats", "'cats' (acme 1.0)", SPEC, Cats())])


def test_the_kind_names_its_descriptor():
    assert MODERATORS.group == ModeratorSpec.group and MODERATORS.flag == "--moderator"


def test_the_options_have_limits():
    assert ModerationOptions().model_dump() == {"moderation_limit": 0.5, "moderation_texts": 100}
    for given in ({"moderation_limit": 0}, {"moderation_limit": 2}, {"moderation_texts": 0}):
        with pytest.raises(ValidationError):
            ModerationOptions(**given)


def test_the_limit_decides():
    strict, lenient = Panel(PANEL._chosen, 0.5), Panel(PANEL._chosen, 1.5)
    assert asyncio.run(strict.judge("a cat")).against == ["cats"]
    assert asyncio.run(lenient.judge("a cat")).against == []


def test_the_panel_tells_why():
    assert asyncio.run(PANEL.judge("a dog")).against == []
    with pytest.raises(RequestError, match="cats are not welcome"):
        asyncio.run(PANEL.admit("a cat"))


def ask(body, path="/v1/chat/completions"):
    """What the application behind the layer reads of a request that comes in two pieces."""
    data, seen = json.dumps(body).encode() if body is not None else b"{", []

    async def app(scope, receive, send):
        more = True
        while more:
            message = await receive()
            seen.append(message["body"])
            more = message.get("more_body", False)

    async def run():
        pieces = [{"type": "http.request", "body": data[:5], "more_body": True}]
        pieces.append({"type": "http.request", "body": data[5:], "more_body": False})

        async def receive():
            return pieces.pop(0)

        await ModerationLayer(app, PANEL)({"type": "http", "method": "POST", "path": path}, receive, None)

    asyncio.run(run())
    assert b"".join(seen) == data


def test_what_nobody_objects_to_passes_whole():
    ask({"messages": [{"role": "user", "content": "a dog"}], "user": "cat"})
    ask(None)
    ask({"input": "cat"}, path="/v1/embeddings")


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": ["a dog", "a cat"]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a cat"}]}]},
        {"input": [{"content": "cat"}]},
    ],
)
def test_texts_are_found_wherever_they_stand(body):
    with pytest.raises(RequestError):
        ask(body)
