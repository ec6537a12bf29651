"""State that the routes of one server share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import Request

from core.api.bodies import Body
from core.api.serving import Dialect
from core.config.resolved import Options
from core.frontend.answering.parsing import AnswerParser
from core.server.body import ignored_fields, read_object
from core.server.dialect import DEFAULT
from core.server.errors import ApiError
from core.server.interface import ServedLLM
from core.server.metrics import Metrics
from core.server.plugin_routes.claims import below

RENDER_THREADS = 2
LOOK_SECONDS = 0.1
"""How often a drain looks: the task of a web socket goes on behind its generation."""

B = TypeVar("B", bound=Body)


@dataclass(slots=True)
class Lifecycle:
    """Where the server is between start and exit.

    Attributes:
        draining: New generations are refused, running ones go on.
        stopped: Running ones are being ended too.
        work: Tasks of the generations in flight.
        sockets: Endpoints of open web sockets, and what tells them that the server ends.
        drain: Begins the end. Until a supervisor sets it, it only has new generations refused.
    """

    draining: bool = False
    stopped: bool = False
    work: set[asyncio.Task[Any]] = field(default_factory=set)
    sockets: dict[asyncio.Task[Any], Callable[[], None]] = field(default_factory=dict)
    drain: Callable[[], None] = field(init=False)

    def __post_init__(self) -> None:
        self.drain = self.refuse

    def refuse(self) -> None:
        """Refuse new generations."""
        self.draining = True

    async def idle(self, timeout: float) -> bool:
        """Wait until no generation is in flight; False after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.work and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(set(self.work), timeout=min(left, LOOK_SECONDS))
        return not self.work

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Have a drain wait for the current task."""
        task = asyncio.current_task()
        mine = task is not None and task not in self.work
        if task is not None and mine:
            self.work.add(task)
        try:
            yield
        finally:
            if task is not None and mine:
                self.work.discard(task)

    async def dismiss(self, timeout: float) -> None:
        """Tell open web sockets that the server ends, and wait for them; after `timeout` seconds they are ended."""
        self.draining = True
        for leave in list(self.sockets.values()):
            leave()
        if self.sockets:
            await asyncio.wait(set(self.sockets), timeout=timeout)
        for task in list(self.sockets):
            task.cancel()
        await asyncio.sleep(0)  # the last of them close

    def stop(self) -> None:
        """End the generations in flight; their clients get an error."""
        self.draining = self.stopped = True
        for task in {*self.work, *self.sockets}:
            task.cancel()


@dataclass(slots=True)
class ServerState:
    """State that the routes of one server share.

    Attributes:
        parser: Reads tool calls and reasoning in chat output, if one was chosen.
        defaults: Sampling parameters used where a request leaves them out.
        reports: How the plugins were selected, as plain data.
        admin_paths: Paths that need the admin scope.
        public_paths: Paths of plugins' assets, which need no key.
        key_headers: In which clients of plugins' APIs send keys, in lower case.
        exposed_headers: Of answers of plugins' routes; web pages of other origins may read them.
        mounted_dialects: Paths that say errors in another way than OpenAI's, with everything below them.
        client_dialects: The same for clients that send a header, on all other paths.
        faults: What failed in plugins' objects of this process, as plain data.
        has_sockets: Whether a plugin has web sockets.
        shown: What clients called their answers, by the engine's name, of generations in flight.
        pending: Sequences that were admitted and have not produced a token.
        renderers: Threads for slow chat templates, which wait for each other only.
    """

    llm: ServedLLM
    options: Options
    metrics: Metrics
    parser: AnswerParser | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    reports: Sequence[Any] = ()
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    mounted_dialects: dict[str, Dialect] = field(default_factory=dict)
    client_dialects: dict[bytes, Dialect] = field(default_factory=dict)
    admin_paths: set[str] = field(default_factory=set)
    public_paths: set[str] = field(default_factory=set)
    key_headers: set[bytes] = field(default_factory=set)
    exposed_headers: set[str] = field(default_factory=set)
    faults: Callable[[], list[dict[str, Any]]] = list
    has_sockets: bool = False
    shown: dict[str, str] = field(default_factory=dict)
    created: int = field(default_factory=lambda: int(time.time()))
    pending: int = 0
    renderers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(RENDER_THREADS, thread_name_prefix="core-render")
    )

    @property
    def ready(self) -> bool:
        """Whether new generations are taken."""
        return self.llm.healthy and not self.lifecycle.draining and not self.llm.paused

    def dialect(self, path: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> Dialect:
        """Return how errors of a path are said, to a client with these headers."""
        places = [place for place in self.mounted_dialects if below(path, place)]
        if places:
            return self.mounted_dialects[max(places, key=len)]
        known = (self.client_dialects.get(name) for name, _ in headers)
        return next((dialect for dialect in known if dialect is not None), DEFAULT)

    async def read(self, request: Request, kind: type[B]) -> tuple[B, dict[str, Any]]:
        """Return a request's body, and its fields as they were sent.

        Raises:
            ApiError: 4xx, it is none, it names another model, or it asks for something the server cannot do.
            ValidationError: A field has the wrong type.
        """
        fields = await read_object(request, self.options.server.max_body_bytes)
        return self.checked(fields, kind), fields

    def checked(self, fields: Mapping[str, Any], kind: type[B]) -> B:
        """Return a body of these fields. Raises as `read`."""
        body = kind.model_validate(fields)
        self.check_model(body.model)
        kind.refuse_unsupported(fields)
        return body

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not served. Raises `ApiError` 404."""
        if name is not None and name != self.llm.model_name:
            message = f"The model '{name[:200]}' does not exist here; this server has '{self.llm.model_name}'."
            raise ApiError(404, message, param="model", code="model_not_found")

    def unread_fields(self, fields: Iterable[str], known: Collection[str]) -> dict[str, str]:
        """Return the header that names the fields of a body which have no effect, or nothing.

        Raises:
            ApiError: 400, there are some and `--strict-fields` refuses them.
        """
        headers = ignored_fields(fields, known)
        if headers and self.options.server.strict_fields:
            first = headers["x-core-ignored-fields"].partition(",")[0]
            message = f"{first}: this server knows no such field, or cannot act on it (--strict-fields)."
            raise ApiError(400, message, param=first, code="unknown_field")
        return headers

    def admit(self, sequences: int) -> None:
        """Refuse what cannot be taken now, before any work is done for it. Raises `ApiError` 503."""
        scheduler = self.options.scheduler
        if self.lifecycle.draining:
            raise ApiError(503, "The server is shutting down.", code="draining")
        if not self.llm.healthy:
            raise self.unavailable()
        # The engine's figure lags behind a burst, so that what was handed over in between counts as well.
        full = self.llm.stats.waiting >= scheduler.max_waiting
        if full or self.pending + sequences > scheduler.max_waiting + scheduler.max_num_seqs:
            raise ApiError(503, "Too many requests are waiting; try again soon.", code="queue_full")

    def unavailable(self) -> ApiError:
        """Return what is said while the engine does not serve: when to come back, if it is being started again."""
        seconds = self.llm.retry_after
        if seconds is None:
            return ApiError(503, "The engine is not available.", code="engine")
        headers = {"retry-after": str(seconds)}
        return ApiError(503, "The engine died and is being started again.", code="engine", headers=headers)

    @contextmanager
    def admitted(self, sequences: int = 1) -> Iterator[None]:
        """Admit work that the engine has no part in, or not yet; it counts until it is done. Raises as `admit`."""
        self.admit(sequences)
        self.pending += sequences
        try:
            yield
        finally:
            self.pending -= sequences

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text. Raises `ApiError` 503, `RequestError` for a text that could never fit."""
        with self.admitted():
            return await self.llm.tokenize(text, add_special_tokens=add_special_tokens)
