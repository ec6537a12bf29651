"""The generations of one response, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.api.serving import Usage
from core.engine.sampling import SamplingParams
from core.frontend.request import GenerationRequest
from core.server.entry import OpenChat, as_asked, open_chat
from core.server.generation import Generation
from core.server.openai.responses.truncate import fitted
from core.server.state import ServerState


@dataclass(slots=True)
class Turns:
    """Opens generations and adds up what they cost.

    Attributes:
        name: The response's id.
        max_tokens: Most tokens of all together.
        truncates: Turns of the conversation may be dropped to make it fit.
        interval: Tokens that a stream gathers per event.
    """

    state: ServerState
    name: str
    max_tokens: int | None
    truncates: bool = False
    interval: int = 1
    _opened: list[Generation] = field(default_factory=list)

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
        """What all of them cost."""
        parts = [generation.usage for generation in self._opened]
        return Usage(
            prompt=sum(part.prompt for part in parts),
            completion=sum(part.completion for part in parts),
            cached=sum(part.cached for part in parts),
        )

    async def open(self, request: GenerationRequest) -> OpenChat:
        """Render a conversation that is about to be answered. Raises `ApiError` and `RequestError`."""
        if self.truncates:
            request = await fitted(self.state, request, admitted=True)
        # Names must differ, as the engine may still be ending the one before.
        name = f"{self.name}-{self.count}" if self.count else self.name
        settle = _within if self._opened else as_asked
        chat = await open_chat(self.state, request, name, interval=self.interval, admitted=True, settle=settle)
        chat.generation.id = self.name  # what clients, and operators, know all of them by
        self._opened.append(chat.generation)
        return chat


def _within(params: SamplingParams, room: int) -> SamplingParams:
    """Lower the limit of a turn whose prompt has grown by results: the client could not know of them."""
    limit = params.max_tokens
    return params if limit is None or not 0 < room < limit else params.replace(max_tokens=room)
