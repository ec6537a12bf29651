"""Routes: further HTTP endpoints of the server, under `/x/<plugin name>/` and what a manifest claims. Provisional."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from asyncio import Task

    from pydantic import BaseModel

    from core.api.bodies import Body
    from core.api.errors import RequestError
    from core.api.figures import FigureCollector
    from core.api.fronts import TaskFront, Work
    from core.api.kinds import Chosen, Kind
    from core.api.middleware import Layer
    from core.api.operator import Operator
    from core.api.pooling import Pooled, Pooler, PoolRequest
    from core.api.sampling import SamplingField, SamplingView
    from core.api.serving import Answer, ChatRequest, Dialect, Reply, TextRequest
    from core.api.sinks import EngineStats
    from core.api.sockets import SocketEndpoint
    from core.api.tokenizer import Tokenizer
    from core.api.uploads import RouteForm

B = TypeVar("B", bound="Body")
T = TypeVar("T")

MAX_PARTS = 64
"""Fields and files of a form, where a plugin says nothing of them."""

RouteScope = Literal["generate", "admin", "public"]
"""Access to a route: with the API's key, with the operator's, or for everybody."""


class RouteRequest(Protocol):
    """One HTTP request. It has passed the key check like every other; an endpoint whose client goes is cancelled.

    Attributes:
        method: `GET`, `POST`, ...
        path: Path without the query.
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

    async def json(self, *, typed: bool = False, limit: int | None = None) -> dict[str, Any]:
        """Return the body, a JSON object within the server's limits; anything else is answered with a 4xx.

        Args:
            typed: Its content type says that it is JSON; if False, only a browser's has to.
            limit: Most bytes; None: as many as the server takes.
        """
        ...

    async def read(self, kind: type[B]) -> tuple[B, dict[str, Any]]:
        """Return the body as a model of `core.api.bodies`, and its fields as they were sent.

        A body that is none, that names another model, or asks for what `kind` refuses, is answered with a 4xx.
        """
        ...

    async def form(
        self, *, limit: int | None = None, part_limit: int | None = None, max_parts: int = MAX_PARTS
    ) -> RouteForm:
        """Return the body, `multipart/form-data` within these bounds: its fields, and its files.

        What is too large is answered with 413 while it still arrives, what is no form with 415 or 400, and a form of a
        web page of another origin with 403, unless that origin is allowed.

        Args:
            limit: Most bytes of the whole body; None: as many as the server takes.
            part_limit: Most bytes of one file; None: no other bound. A field that is none has 1 MiB at most.
            max_parts: Most fields and files together.
        """
        ...


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """An answer.

    Nothing is sent before an iterator's first piece: a `RequestError` that it raises until then becomes the status. An
    empty first piece sends the head alone.

    Attributes:
        body: The bytes, or an iterator of pieces, which are sent as they come.
        status: HTTP status.
        media_type: Value of the header Content-Type; None: there is no such header.
        headers: Further headers.
    """

    body: bytes | AsyncIterator[bytes] = b""
    status: int = 200
    media_type: str | None = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


Endpoint = Callable[[RouteRequest], Awaitable["RouteResponse | Reply"]]
"""`RequestError` raised in an endpoint becomes its status; anything else a 500 without details."""


class RouteRegistry(Protocol):
    """Where a plugin declares its routes.

    All methods that declare raise `PluginError` CORE-P130 when a path lies elsewhere or is taken, or a figure's name
    is.

    Attributes:
        settings: Values of the options that the descriptor names. What is wrong with them is refused here with a
            `ConfigError`, before the engine starts.
    """

    @property
    def settings(self) -> Mapping[str, Any]: ...

    def chosen(self, kind: Kind | str) -> Sequence[Chosen]:
        """Return what `EngineClient.chosen` does."""
        ...

    def add(
        self,
        method: str,
        path: str,
        endpoint: Endpoint,
        *,
        summary: str = "",
        body: type[BaseModel] | None = None,
        header: str | None = None,
        generates: bool = False,
        streams: bool = False,
        scope: RouteScope = "generate",
        takes: str = "application/json",
    ) -> None:
        """Declare a route.

        Args:
            method: `GET`, `POST`, `PUT`, `PATCH`, `DELETE` or `HEAD`.
            path: `/x/<plugin name>`, one of the descriptor's `mounts`, or below them; `{name}` parts are parameters.
            body: What clients are told of its body.
            header: Name of a header: the route is for clients that send it alone, and its path may be anybody's.
            generates: A model that gives vectors answers it with 400.
            streams: It may answer with events, which is told to clients; a body with a field `stream` says so itself.
            scope: `generate`: it needs the API's key. `admin`: it needs the operator's; the
                path decides before a route is looked for, so that it has no parameters, and all methods of it are
                `admin`. `public`: GET or HEAD of a path without parameters under the descriptor's `public`, which
                nobody needs a key for.
            takes: Media type of `body`, as clients are told: `multipart/form-data` of a route that reads a form.
        """
        ...

    def socket(self, path: str, endpoint: SocketEndpoint, *, summary: str = "", scope: RouteScope = "generate") -> None:
        """Declare a web socket; the path may have routes as well. Layers do not see it.

        Clients send the key as those of routes do, in a header. Web pages cannot set headers of web sockets, and no
        key is taken from anywhere else: they have sockets where the server has no keys and their origin is allowed.

        Args:
            path: As of `add`.
            scope: `generate` or `admin`, as of `add`.
        """
        ...

    def asset(
        self,
        path: str,
        content: bytes,
        media_type: str,
        *,
        headers: Mapping[str, str] | None = None,
        optional: bool = False,
    ) -> None:
        """Declare a file that everybody may read, without a key: the same bytes for GET and HEAD at all times.

        No code of the plugin runs for such a request. Core adds the ETag and the headers that keep browsers from
        guessing types and from showing the file inside of other sites' pages.

        Args:
            path: Lies in the descriptor's `public` paths and has no parameters.
            headers: Further headers, such as a Content-Security-Policy.
            optional: Left out, instead of refused, where another plugin has the path.
        """
        ...

    def first_request(self, find: Callable[[EngineClient], tuple[str, Mapping[str, Any]] | None]) -> None:
        """Show whoever starts the server a request to copy.

        Args:
            find: Is asked once the engine is ready; returns path and fields of a request that the served model answers,
                None where there is none.
        """
        ...

    def figures(self, names: Iterable[str], collect: FigureCollector) -> None:
        """Show figures of the plugin's own on `/metrics`, behind core's.

        Of what cannot be shown nothing is, the log says once why, and the rest of the page is served.

        Args:
            names: Of all that `collect` ever gives, as `Figure.name`. Those that begin with `core_` or `process_` are
                core's.
            collect: Is asked whenever the page is.
        """
        ...

    def layer(self, layer: Layer) -> None:
        """Put ASGI middleware around all routes of the server, inside its keys, limits and counts.

        It is made when the plugin is bound. Of several, that of the plugin declared first is outermost. A
        `RequestError` that it raises becomes the answer; anything else of its own is its fault: a 500.
        What comes from behind it is not. See `core.api.middleware`.
        """
        ...

    def dialect(self, dialect: Dialect, *, place: str | None = None, header: str | None = None) -> None:
        """Say how errors of all paths of this plugin look, those of the key check included; else as OpenAI's.

        Args:
            place: One of these paths: it is said of that alone, and what lies below it.
            header: Name of a header: to clients that send it, errors look so on paths without a dialect of their own.
        """
        ...


class EngineClient(Protocol):
    """The running engine, as routes see it.

    Attributes:
        model_name: Name the model is served under.
        max_model_len: Longest prompt plus output, in tokens.
        tokenizer: The model's.
        stats: The engine's latest figures.
        healthy: Whether the engine lives and moves on.
        created: When the server was started, in seconds since 1970.
        abilities: What can be asked for: of `complete`, `chat`, `tools`, `thinking`, `switched_thinking` (as far as is
            known the chat template lets a request switch it off), `bounded_thinking` (a budget ends it, since it is
            known where the model thinks), and the tasks of models that give vectors (`embed`, `classify`, ...).
        facts: What is known of the checkpoint, of `architecture`, `format`, `quantization`, `dtype`, `num_bytes`.
        template_variables: Names in `template_args` that have an effect, `tools` and `documents` among them; None where
            nobody knows.
        defaults: Sampling parameters that hold where a request says nothing, by name.
        plugin_fields: Sampling parameters that plugins of the engine declare, by name: `sampling` of a request takes
            them as it takes those of `SAMPLING_FIELDS`.
        settings: Values of the server's options that the descriptor names.
        operator: What whoever runs the server sees and does, for routes of the scope `admin`.
        stopping: The server ends, and with it what is being generated.

    What is asked counts for admission, metrics and drain. What is raised are `RequestError`s, whose `status` says whose
    fault it is: 4xx the request's, 503 the server's, which is full, stopping or broken.
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

    @property
    def created(self) -> int: ...

    @property
    def abilities(self) -> frozenset[str]: ...

    @property
    def facts(self) -> Mapping[str, Any]: ...

    @property
    def template_variables(self) -> frozenset[str] | None: ...

    @property
    def defaults(self) -> Mapping[str, Any]: ...

    @property
    def plugin_fields(self) -> Mapping[str, SamplingField]: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    @property
    def operator(self) -> Operator: ...

    @property
    def stopping(self) -> bool: ...

    async def open(
        self, request: ChatRequest | TextRequest, *, prefix: str, name: str | None = None, turn: int = 0
    ) -> Answer:
        """Check, admit and render a request; nothing is sent to the engine before the answer runs.

        Args:
            prefix: What the answer's id begins with.
            name: The whole id, for an answer of several generations that is called the same all along: it was admitted
                once (`admit`), and is not refused because others wait.
            turn: Which of these generations it is, from 0: no two have the same.
        """
        ...

    def check(self, request: ChatRequest | TextRequest) -> None:
        """Refuse what is wrong with a request as far as that shows before it is rendered."""
        ...

    def admit(self, sequences: int = 1) -> None:
        """Refuse, with 503, so many more sequences while the server is full, stopping or broken."""
        ...

    async def render(self, request: ChatRequest, *, admitted: bool = False) -> Sequence[int]:
        """Return the tokens of a conversation, as its template renders it; nothing is generated.

        Args:
            admitted: It belongs to what was admitted before (`admit`), and is not refused because others wait.
        """
        ...

    async def describe(self, request: ChatRequest | TextRequest, *, offsets: bool = False) -> list[dict[str, Any]]:
        """Return what the engine would be sent for each prompt, as plain data; nothing is generated.

        Args:
            offsets: With where each token stands in the prompt's text, in characters, as `token_offsets`.
        """
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> Task[None]:
        """Have work go on beside requests; a server that drains waits for it, and one that stops cancels it."""
        ...

    def error(self, raised: BaseException) -> RequestError:
        """Return what clients are told of what was raised; what nobody expected is logged."""
        ...

    def chosen(self, kind: Kind | str) -> Sequence[Chosen]:
        """Return the plugins that the user chose of a kind, or of the group of one, in order, each as an object.

        The kind is one that a plugin defines, or one of core's that the descriptor says it drives. An object is made
        once for all routes, and held against the kind's protocol before.

        Raises:
            PluginError: One cannot be made or does not fit (CORE-P103, CORE-P108, CORE-P160), or the kind is another of
                core's (CORE-P132).
        """
        ...

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not served, with 404; None is the one that is."""
        ...

    def unread(self, fields: Iterable[str], known: Collection[str] = ()) -> dict[str, str]:
        """Return the header that names those of a body's fields which are not `known`; none if all are.

        `--strict-fields` refuses such a body.
        """
        ...

    def pooler(self, task: str | None = None) -> Pooler:
        """Return what the model can do that gives vectors.

        Refuse, with 400 and the reason, one that generates instead, or cannot do this task.
        """
        ...

    async def pool(self, request: PoolRequest[T], *, prefix: str) -> Pooled[T]:
        """Check, admit and run a request for vectors, scores, or an I/O processor's answer.

        Long texts are made ready beside the event loop; cancelling it ends what runs.

        Args:
            prefix: What the answer's id begins with.
        """
        ...

    @property
    def front(self) -> TaskFront | None:
        """The front half of the engine's task, which makes work for `run`; None where the engine generates."""
        ...

    async def run(
        self, work: Work[T], *, priority: int = 0, cache_salt: str | None = None, user: str | None = None
    ) -> list[T]:
        """Admit and run work of `front`; cancelling it ends what runs.

        Args:
            priority: Smaller runs earlier, under a policy that looks at it.
            cache_salt: Requests share cached prefixes only under the same salt.
            user: Whom the body names as its user.
        """
        ...

    def generate(self, prompt: str | list[int], params: SamplingView | None = None) -> AsyncIterator[GeneratedText]:
        """Yield what a generation has given so far, until it has finished; closing the iterator aborts it.

        Args:
            params: A `core.SamplingParams`; None takes the model's defaults.
        """
        ...

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text.

        It counts for admission, runs beside the event loop where that takes its time, and is refused if no tokenization
        could make it fit the model's length. `tokenizer` knows no such bounds.
        """
        ...

    async def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, special ones included; as `tokenize`, it counts for admission."""
        ...

    async def call(self, method: str, *args: Any) -> Any:
        """Call a named engine method (`stats`, `reset_prefix_cache`, ...) with plain data."""
        ...


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """Everything a generation has given so far.

    Attributes:
        text: Text.
        token_ids: Its tokens.
        finish_reason: Why it ended (`stop`, `length`, `abort`, ...); None while it runs.
    """

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
