"""Route plugins and clients that do what they should not: bodies that nobody reads, errors of every sort, late ends."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from core.api import Dialect, RequestError, RouteResponse, RouteSpec
from core.server.app import create_app
from core.server.plugin_routes.table import RouteTable

SPEC = RouteSpec(name="bad", impl="x:Y", api=1, summary="s", mounts=("/bad",))


class Plugin:
    """Declares `endpoint` as POST and GET /bad/it."""

    def __init__(self, endpoint=None):
        self.endpoint = endpoint

    def declare(self, registry):
        for method in ("POST", "GET"):
            registry.add(method, "/bad/it", self.endpoint)

    def bind(self, client):
        pass


@pytest.fixture
def serve(llm, options):
    """`serve(endpoint)` makes the application."""

    def make(endpoint, errors=None):
        table, plugin = RouteTable(), Plugin(endpoint)
        registry = table.registry("bad", "'bad' (acme 1)", SPEC)
        plugin.declare(registry)
        if errors is not None:
            registry.dialect(Dialect(errors))
        table.plugins.append(("'bad' (acme 1)", plugin))
        app = create_app(llm, options(), plugin_routes=table.routes)
        table.bind(app.state.core)
        return app

    return make


def asked(app, method="POST", **request):
    async def go():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            return await asyncio.wait_for(client.request(method, "/bad/it", **request), 5)

    return asyncio.run(go())


def pieces(*given):
    async def body():
        for one in given:
            await asyncio.sleep(0)
            if isinstance(one, Exception):
                raise one
            yield one

    return body()


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("streams", [True, False])
def test_a_body_that_nobody_reads_is_no_client_that_went(serve, method, streams):
    async def endpoint(request):
        return RouteResponse(pieces(b"a", b"b", b"c") if streams else b"abc")

    answer = asked(serve(endpoint), method, content=b"x" * 100_000)
    assert (answer.status_code, answer.content) == (200, b"abc")


def raising(error):
    async def endpoint(request):
        raise error

    return endpoint


def giving(*given):
    async def endpoint(request):
        return RouteResponse(*given)

    return endpoint


async def reads_twice(request):
    await request.json()
    await request.json()
    return RouteResponse(b"{}")


@pytest.mark.parametrize(
    "endpoint",
    [
        raising(ValueError("secret")),
        raising(KeyError()),
        raising(ExceptionGroup("secret", [ValueError("secret")])),
        raising(TimeoutError()),
        giving(pieces(ValueError("secret"))),
        giving("secret"),
        giving(None),
        giving(b"x", "no status"),
        giving(pieces("no bytes")),
        reads_twice,
    ],
)
def test_what_a_plugin_does_wrong_is_a_500_without_details(serve, endpoint):
    app = serve(endpoint)
    answer = asked(app, json={})
    assert answer.status_code in (500, 503) and "secret" not in answer.text
    assert answer.json()["error"]["message"]
    assert not app.state.core.lifecycle.work


@pytest.mark.parametrize("status", [200, 42, 999, 10**6])
def test_a_refusal_with_a_strange_status_is_an_error_still(serve, status):
    answer = asked(serve(raising(RequestError("no", status=status))), json={})
    assert answer.status_code >= 400 and "no" in answer.text


@pytest.mark.parametrize(
    "said", [lambda error: 5, lambda error: {1: object()}, lambda error: 1 / 0, lambda error: None]
)
def test_errors_that_a_plugin_cannot_say_are_cores(serve, said):
    answer = asked(serve(raising(RequestError("no", param="x")), said), json={})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "x"


@pytest.mark.parametrize(
    ("endpoint", "cause"),
    [
        (raising(KeyError("secret")), "KeyError: 'secret'"),
        (raising(ExceptionGroup("secret", [ValueError("x")])), "ExceptionGroup: secret"),
        (giving(pieces(OSError("secret"))), "OSError: secret"),
        (giving(pieces("secret")), "TypeError: the iterator gives str, not bytes"),
        (giving(b"x", "secret"), "TypeError"),
        (reads_twice, "RuntimeError"),
    ],
)
def test_a_route_that_fails_is_named_and_the_log_has_the_cause(serve, caplog, endpoint, cause):
    answer = asked(serve(endpoint), json={})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (500, "CORE-P108") and "secret" not in answer.text
    assert error["message"] == "Route plugin 'bad' (acme 1) failed (CORE-P108)."
    assert f"CORE-P108 route plugin 'bad' (acme 1): POST /bad/it raised {cause}" in caplog.text
