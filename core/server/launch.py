"""`core serve`: claim the address, start the engine, serve until the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import uvloop
from fastapi import FastAPI

from core.api.errors import CoreError, EngineError
from core.config.resolved import Options
from core.frontend.answering.parsing import chosen_parser
from core.frontend.sampling import model_defaults
from core.phases import phase, report
from core.server.app import create_app
from core.server.http import HttpServer, relax_collector
from core.server.interface import ServedLLM
from core.server.listen import Listener, bind
from core.server.plugin_routes.table import RouteTable
from core.server.registry import Registration
from core.server.state import ServerState
from core.server.supervisor import Supervisor, signals_to
from core.signals import SIGNALLED

if TYPE_CHECKING:
    import ssl

    from core.api.tokenizer import Tokenizer
    from core.engine.child import EngineChild
    from core.engine.client import AsyncEngine
    from core.selection.resolver import Resolution

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 15.0
FORCED_CLOSE_SECONDS = 1.0


@dataclass(slots=True)
class ReadyFrontEnd:
    """A front end that is ready, its application, how long what took, and what the worker found.

    Attributes:
        example: Path and fields of a first request, if a route plugin has one for the model.
    """

    llm: ServedLLM
    app: FastAPI
    timeline: list[tuple[str, float]] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    on_draining: Callable[[], None] | None = None
    example: tuple[str, Mapping[str, Any]] | None = None


def run(
    resolution: Resolution, options: Options, *, listener: Listener | None = None, child: EngineChild | None = None
) -> int:
    """Serve a resolved configuration; return the exit status (0 after a drain).

    Args:
        listener: The options' address, if it is claimed already; closed in the end.
        child: The engine's process, if it was started ahead.

    Raises:
        CoreError: The address is taken (before anything is loaded), the engine cannot start, or it died.
    """
    from core.server.start_report import show_choices

    listener = listener or bind(options.server)
    try:
        show_choices(resolution)
        return serve(options, listener, lambda: start(resolution, options, child))
    finally:
        listener.close()


def serve(options: Options, listener: Listener, starter: Callable[[], Awaitable[ReadyFrontEnd]]) -> int:
    """Start with `starter` and serve on `listener`; return the exit status. Raises `CoreError`."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_main(options, listener, starter))


async def start(resolution: Resolution, options: Options, child: EngineChild | None = None) -> ReadyFrontEnd:
    """Start the engine (in `child`, if it was started ahead) and what stands in front of it. Raises `CoreError`."""
    from core.engine.client import open_async
    from core.frontend.async_llm import AsyncLLM
    from core.plugins.active import enter

    began = time.perf_counter()
    plugins = enter(resolution.config.plan)
    parser = chosen_parser(plugins, options.select.tool_parser)
    routes = RouteTable.declare(plugins, options)
    engine, tokenizer = await _start_both(resolution, child)
    llm = await AsyncLLM.connect(resolution, engine, tokenizer, partial(open_async, resolution.config))
    try:
        with phase("application"):
            if parser is not None:  # a checkpoint that it cannot go by is refused now, not at the first request
                parser.make(parser.context(tokenizer, [], []))
            if options.select.tool_parser and llm.model.has_chat_template and "tools" not in llm.template_variables:
                logger.warning(
                    "the chat template does not show tools to the model: it calls them only where a request forces it"
                    " to (give a template that shows them with --chat-template FILE)"
                )
            app = create_app(
                llm,
                options,
                parser=parser,
                reports=resolution.reports,
                defaults=model_defaults(llm.default_params),
                plugin_routes=routes.routes,
                layers=routes.layers,
                figures=routes.figures,
            )
            app.state.core.faults = llm.model.plugins.sinks.faults
            routes.bind(app.state.core)
            example = routes.first_request(app.state.core)
    except BaseException:
        await llm.close()
        raise
    timeline = list(engine.ready.timeline)
    timeline.append(("rest", max(0.0, time.perf_counter() - began - sum(seconds for _, seconds in timeline))))
    facts = {**engine.ready.facts, **routes.facts()}
    return ReadyFrontEnd(llm, app, timeline, facts, lambda: plugins.events("draining", {}), example)


def http_server(
    app: FastAPI, options: Options, on_started: Callable[[], None], tls: ssl.SSLContext | None = None
) -> HttpServer:
    """Return what serves an application; with web sockets, if a plugin has some."""
    state: ServerState = app.state.core
    message_bytes = options.server.max_body_bytes if state.has_sockets else None
    return HttpServer(app, on_started, tls, state.metrics.unheard, message_bytes)


async def _start_both(resolution: Resolution, child: EngineChild | None) -> tuple[AsyncEngine, Tokenizer]:
    """Start the engine and, meanwhile, build the tokenizer; one that cannot be used ends the start at once."""
    from core.engine.client import open_async
    from core.terminal.progress import WeightProgress

    config = resolution.config
    with WeightProgress() as progress:
        engine = asyncio.create_task(
            open_async(config, on_progress=lambda step: progress.update(step.done, step.total), child=child)
        )
        try:
            tokenizer = await asyncio.to_thread(_tokenizer, resolution)
            with phase("wait for the engine"):
                return await engine, tokenizer
        except BaseException:
            await _abandon(engine)
            raise


def _tokenizer(resolution: Resolution) -> Tokenizer:
    from core.selection.no_tokenizer import tokenizer_of

    with phase("tokenizer"):
        return tokenizer_of(resolution.reader, resolution.config)


async def _abandon(starting: asyncio.Task[AsyncEngine]) -> None:
    """End an engine that is being started or has been."""
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError, CoreError):
        await (await starting).close()


async def _main(options: Options, listener: Listener, starter: Callable[[], Awaitable[ReadyFrontEnd]]) -> int:
    starting = asyncio.ensure_future(starter())
    interrupts: list[int] = []

    def interrupted(number: int) -> None:
        interrupts.append(number)
        starting.cancel()

    with signals_to(interrupted):
        try:
            started = await starting
        except asyncio.CancelledError:
            if not interrupts:
                raise
            return SIGNALLED + interrupts[0]
    return await _serve(options, listener, started)


async def _serve(options: Options, listener: Listener, started: ReadyFrontEnd) -> int:
    from core.server.start_report import ready_text, show_ready

    def ready() -> None:
        relax_collector()
        report("listen", time.perf_counter() - began)
        more = {} if started.example is None else {"example": started.example}
        key = options.server.api_key is not None
        banner = ready_text(listener.url, started.llm.model_name, api_key=key, **more)
        show_ready(banner, listener.url, started.llm.model_name, started.facts, started.timeline)
        registration.write()

    began = time.perf_counter()
    registration = Registration(listener.url, started.llm.model_name)
    tls = listener.tls
    state: ServerState = started.app.state.core
    server = http_server(started.app, options, ready, tls.context if tls is not None else None)
    supervisor = Supervisor(server, state, started.on_draining)
    watches = [asyncio.create_task(supervisor.watch())]
    if tls is not None and tls.refreshed:
        watches.append(asyncio.create_task(tls.watch()))
    try:
        with signals_to(supervisor.signalled):
            await server.serve(sockets=[listener.socket])
    except OSError as error:
        raise EngineError("CORE-S104", f"cannot accept connections on {listener.url}: {error.strerror}.") from None
    finally:
        registration.remove()
        for watch in watches:
            watch.cancel()
        await _close(started.llm, FORCED_CLOSE_SECONDS if supervisor.forced else CLOSE_SECONDS)
    if supervisor.error is not None:
        raise supervisor.error
    return 0 if supervisor.forced is None else SIGNALLED + supervisor.forced


async def _close(llm: Any, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(llm.close(), seconds)
