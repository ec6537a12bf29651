"""`POST /v1/moderations`, in OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from acme_core_moderation.kinds import MODERATORS
from acme_core_moderation.layer import ModerationLayer
from acme_core_moderation.panel import Judgement, Panel
from core.api import EngineClient, Figure, FigureSample, RequestError, RouteRegistry, RouteRequest, RouteResponse
from core.api.middleware import AsgiApp

REFUSALS = "acme_moderation_refusals"
"""Name of the figure on `/metrics`."""


class ModerationRoutes:
    """The route, the layer, and the moderators that both ask."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._panel, self._most = Panel(()), 0

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the route."""
        registry.layer(self._layer)
        registry.figures([REFUSALS], self.figures)
        registry.add("POST", "/v1/moderations", self.moderate, summary="What the moderators say of texts")

    def bind(self, client: EngineClient) -> None:
        """Take the moderators that the user chose, and the options; requests come from now on."""
        settings = client.settings
        self._panel = Panel(client.chosen(MODERATORS), settings["moderation_limit"])
        self._most = settings["moderation_texts"]

    def figures(self, core: Mapping[str, Figure]) -> Iterator[Figure]:
        """Count what was refused, for `/metrics`."""
        samples = [FigureSample(count, {"category": name}) for name, count in self._panel.refusals.items()]
        yield Figure(REFUSALS, "Texts that were refused, by category.", "counter", samples)

    def _layer(self, app: AsgiApp) -> AsgiApp:
        return ModerationLayer(app, self._panel) if self._panel else app

    async def moderate(self, request: RouteRequest) -> RouteResponse:
        """Say what speaks against each text of `input`."""
        texts = (await request.json()).get("input")
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise RequestError("input must be a text, or a list of texts.", param="input")
        if len(texts) > self._most:
            raise RequestError(f"input has {len(texts)} texts; {self._most} are allowed.", param="input")
        results = [_result(await self._panel.judge(text)) for text in texts]
        return RouteResponse(json.dumps({"model": "moderators", "results": results}).encode())


def _result(judged: Judgement) -> dict[str, Any]:
    against = judged.against
    return {
        "flagged": bool(against),
        "categories": {name: name in against for name in judged.scores},
        "category_scores": judged.scores,
    }
