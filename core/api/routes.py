"""Routes: further HTTP endpoints of the server, under `/x/<plugin name>/`. Provisional."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from core.api.sampling import SamplingView
    from core.api.sinks import EngineStats
    from core.api.tokenizer import Tokenizer


class RouteRequest(Protocol):
    """One HTTP request. It has passed the key check like every other.

    Attributes:
        path_params: Values of the path's `{name}` parts.
        query: Query parameters; of a repeated one, the last.
        headers: Header names in lower case.
    """

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def path_params(self) -> Mapping[str, str]: ...

    @property
    def query(self) -> Mapping[str, str]: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def json(self) -> dict[str, Any]:
        """Return the body, a JSON object within the server's limits; anything else is answered with a 4xx."""
        ...


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """An answer. `body` may be an iterator of pieces, which are sent as they come."""

    body: bytes | AsyncIterator[bytes] = b""
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


Endpoint = Callable[[RouteRequest], Awaitable[RouteResponse]]
"""`RequestError` raised in an endpoint becomes its status; anything else a 500 without details."""


class RouteRegistry(Protocol):
    """Where a plugin declares its routes."""

    def add(self, method: str, path: str, endpoint: Endpoint, *, summary: str = "") -> None:
        """Declare a route.

        Args:
            method: `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
            path: `/x/<plugin name>` or below it; `{name}` parts are parameters.

        Raises:
            PluginError: The path lies elsewhere, the method is unknown, or the route is taken.
        """
        ...


class EngineClient(Protocol):
    """The running engine, as routes see it.

    Attributes:
        model_name: Name the model is served under.
        max_model_len: Longest prompt plus output, in tokens.
        stats: The engine's latest figures.
        healthy: Whether the engine lives and moves on.
    """

    @property
    def model_name(self) -> str: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def stats(self) -> EngineStats: ...

    @property
    def healthy(self) -> bool: ...

    def generate(self, prompt: str | list[int], params: SamplingView | None = None) -> AsyncIterator[GeneratedText]:
        """Yield what a generation has given so far, until it has finished; closing the iterator aborts it.

        Args:
            params: A `core.SamplingParams`; None takes the model's defaults.
        """
        ...

    async def call(self, method: str, *args: Any) -> Any:
        """Call a named engine method (`stats`, `reset_prefix_cache`, ...) with plain data."""
        ...


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """Everything a generation has given so far; `finish_reason` is None while it runs."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None


class RoutePlugin(Protocol):
    """Runtime of a `RouteSpec`, in the server process. Torch-free."""

    def __init__(self, options: Mapping[str, Any]) -> None: ...

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the routes. Runs before the engine starts, so that a conflict is found at once."""
        ...

    def bind(self, client: EngineClient) -> None:
        """The engine is ready; requests come after this."""
        ...
