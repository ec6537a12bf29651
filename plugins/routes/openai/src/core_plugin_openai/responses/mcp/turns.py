"""The generations of one response, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from core.api import Answer, ChatRequest, EngineClient, Usage
from core_plugin_openai.responses.truncate import fitted


@dataclass(slots=True)
class Turns:
    """Opens generations and adds up what they cost.

    Attributes:
        name: The response's id.
        max_tokens: Most tokens of all together.
        truncates: Turns of the conversation may be dropped to make it fit.
    """

    client: EngineClient
    name: str
    max_tokens: int | None
    truncates: bool = False
    _opened: list[Answer] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many there were."""
        return len(self._opened)

    @property
    def left(self) -> int | None:
        """How many tokens the next one may have."""
        return None if self.max_tokens is None else self.max_tokens - self.usage.completion

    @property
    def usage(self) -> Usage:
        """Usage of all of them together."""
        parts = [generation.usage for generation in self._opened]
        return Usage(
            prompt=sum(part.prompt for part in parts),
            completion=sum(part.completion for part in parts),
            cached=sum(part.cached for part in parts),
        )

    async def open(self, request: ChatRequest) -> Answer:
        """Render a conversation that is about to be answered. Raises `RequestError`."""
        if self.truncates:
            request = await fitted(self.client, request)
        # A later prompt has grown by results, which the client could not know of.
        request = replace(request, fitted=bool(self._opened))
        generation = await self.client.open(request, prefix="resp", name=self.name, turn=self.count)
        self._opened.append(generation)
        return generation
