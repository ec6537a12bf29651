"""Tool-server clients: what servers say arrives, what they do wrong is an error, and nothing is entrusted to others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from core.api.tool_servers import ToolServerClient, ToolServerError, ToolSession
from core_testing.conformance.outcome import Failed, NotApplicable, checks, require
from core_testing.conformance.samples import ToolServerSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.options import every_options
from core_testing.conformance.tools.rude_server import ANSWERS, RudeServer

SECRET = "kit-secret-4711"
_HEADERS = {"Authorization": f"Bearer {SECRET}"}
_PATIENCE = 20.0
_PROMPT = 3.0
"""Seconds in which a cancelled call gives up."""


def tools_are_listed_and_called(subject: Subject) -> None:
    """The sample's server lists the tools that the sample says, with schemas, and calls give what it says."""

    async def use(session: ToolSession, sample: ToolServerSample) -> None:
        tools = {tool.name: tool for tool in await session.list_tools()}
        missing = {name for name, *_ in sample.calls} - tools.keys()
        require(not missing, f"it does not list {sorted(missing)}")
        for tool in tools.values():
            require(orjson.loads(orjson.dumps(tool.input_schema)) is not None, f"'{tool.name}' has no schema")
        for name, arguments, text, failed in sample.calls:
            result = await session.call_tool(name, arguments)
            told = f"{name}({arguments!r}) gives {result!r:.200}"
            require(text in result.text and result.failed == failed, f"{told}, not {text!r} with failed={failed}")

    _with_sessions(subject, use)


def calls_overlap(subject: Subject) -> None:
    """Calls made at once by several tasks each get their own result."""

    async def use(session: ToolSession, sample: ToolServerSample) -> None:
        calls = list(sample.calls) * 4
        results = await asyncio.gather(*(session.call_tool(name, arguments) for name, arguments, _, _ in calls))
        for (name, arguments, text, _), result in zip(calls, results):
            require(text in result.text, f"beside others {name}({arguments!r}) gives {result.text!r:.200}")

    _with_sessions(subject, use)


def cancelled_calls_do_no_harm(subject: Subject) -> None:
    """A call that is cancelled gives up at once, and the session is as good as before."""

    async def use(session: ToolSession, sample: ToolServerSample) -> None:
        if sample.slow is None:
            raise NotApplicable("its sample has no slow tool")
        task = asyncio.create_task(session.call_tool(*sample.slow))
        await asyncio.sleep(0.2)
        task.cancel()
        begin = time.monotonic()
        await asyncio.wait((task,), timeout=_PATIENCE)
        require(task.done() and time.monotonic() - begin < _PROMPT, "a call that was cancelled goes on")
        require(task.cancelled(), "a call that was cancelled ends in another way")
        name, arguments, text, _ = sample.calls[0]
        result = await session.call_tool(name, arguments)
        require(text in result.text, f"after a cancelled call {name}({arguments!r}) gives {result.text!r:.200}")

    _with_sessions(subject, use)


def closing_leaves_nothing(subject: Subject) -> None:
    """A session that is closed leaves no task, also one that was never used, and then refuses calls with an error."""

    async def go(client: ToolServerClient, url: str, sample: ToolServerSample) -> None:
        before = asyncio.all_tasks()
        for used in (True, False):
            session = await client.open(url, _HEADERS)
            if used:
                await session.list_tools()
            await asyncio.wait_for(session.close(), _PATIENCE)
            name, arguments, *_ = sample.calls[0]
            await _must_fail(session.call_tool(name, arguments), "a call on a closed session")
        await asyncio.sleep(0.05)
        left = {task.get_name() for task in asyncio.all_tasks() - before}
        require(not left, f"tasks are left: {sorted(left)}")

    for client, sample in _clients(subject):
        with sample.serve() as url:
            _run(go(client, url, sample))


def broken_servers_are_errors(subject: Subject) -> None:
    """Servers that are not there, or answer with nonsense, give a `ToolServerError` without address and headers."""
    for options in every_options(subject):
        client = subject.impl()(options)
        _run(_fails(client, "http://127.0.0.1:9/mcp?key=" + SECRET, "a port that nobody listens on"))
        for name in ANSWERS:
            with RudeServer(name) as server:
                _run(_fails(client, f"{server.url}/mcp?key={SECRET}", f"a server that answers with {name}"))


def redirects_betray_nothing(subject: Subject) -> None:
    """A server that sends the client on to another host is not obeyed: the other one hears nothing."""
    for options in every_options(subject):
        client = subject.impl()(options)
        for status in (302, 307):
            with RudeServer("nothing") as other, RudeServer(f"status {status}", other.url) as server:
                _run(_fails(client, f"{server.url}/mcp", f"a redirect with status {status} to another host"))
                require(not other.requests, f"a redirect with status {status} is followed to another host")


async def _fails(client: ToolServerClient, url: str, what: str) -> None:
    async def go() -> None:
        session = await client.open(url, _HEADERS)
        try:
            await session.list_tools()
        finally:
            await session.close()

    error = await _must_fail(go(), what)
    require(SECRET not in error.message, f"{what}: the error tells a secret: {error.message!r}")
    require(len(error.message) > 3, f"{what}: the error says nothing")


async def _must_fail(work: Awaitable[Any], what: str) -> ToolServerError:
    try:
        async with asyncio.timeout(_PATIENCE):
            await work
    except ToolServerError as error:
        return error
    except TimeoutError:
        raise Failed(f"{what}: no answer within {_PATIENCE:g} s") from None
    except Exception as error:
        raise Failed(f"{what}: {type(error).__name__} instead of ToolServerError: {error}") from error
    raise Failed(f"{what}: no error")


def _with_sessions(subject: Subject, use: Callable[[ToolSession, ToolServerSample], Coroutine[Any, Any, None]]) -> None:
    async def go(client: ToolServerClient, url: str, sample: ToolServerSample) -> None:
        session = await client.open(url, _HEADERS)
        try:
            await use(session, sample)
        finally:
            await session.close()

    for client, sample in _clients(subject):
        with sample.serve() as url:
            _run(go(client, url, sample))


def _clients(subject: Subject) -> Iterator[tuple[ToolServerClient, ToolServerSample]]:
    for sample in subject.need_samples(ToolServerSample):
        for options in every_options(subject):
            yield subject.impl()(options), sample


def _run(work: Coroutine[Any, Any, None]) -> None:
    with _told():
        asyncio.run(work)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except ToolServerError as error:
        raise Failed(f"the sample's server does not work: {error.message}") from error


CHECKS = checks(
    tools_are_listed_and_called,
    calls_overlap,
    cancelled_calls_do_no_harm,
    closing_leaves_nothing,
    broken_servers_are_errors,
    redirects_betray_nothing,
)
