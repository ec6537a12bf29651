"""Scopes and layers of route plugins: who may ask, who is told, and whose fault it is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import httpx
import pytest
from core_plugin_openai.manifest import OPENAI
from core_plugin_openai.routes import OpenAIRoutes

from core.api import PluginError, RequestError, RouteResponse, RouteSpec
from core.server.plugin_routes.free_paths import check_free
from core.server.plugin_routes.table import RouteTable
from core_testing.served import served_app

SPEC = RouteSpec(name="own", impl="x:Y", api=1, summary="s", mounts=("/own", "/v1/own"), public=("/own/open",))
PAGE = "https://app.example.com"


class Own:
    """Routes of every scope, and a layer if there is one."""

    def __init__(self, layer=None):
        self.layer = layer

    def declare(self, registry):
        registry.add("POST", "/own/closed", self.answer, scope="admin")
        registry.add("GET", "/v1/own", self.answer, scope="admin")
        registry.add("GET", "/own/plain", self.answer)
        registry.add("GET", "/own/open", self.answer, scope="public")
        registry.add("GET", "/own/fails", self.fails)
        if self.layer is not None:
            registry.layer(self.layer)

    def bind(self, client):
        self.client = client

    async def answer(self, request):
        return RouteResponse(b"{}")

    async def fails(self, request):
        raise RequestError("not so", status=418)


@pytest.fixture
def ask(llm, options):
    def make(layer=None, **server):
        app = served_app(llm, options(**server), {SPEC: Own(layer)})

        def request(method, path, **more):
            async def go():
                async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client:
                    return await asyncio.wait_for(client.request(method, path, **more), 5)

            return asyncio.run(go())

        return request

    return make


@pytest.mark.parametrize(("method", "path"), [("POST", "/own/closed"), ("GET", "/v1/own")])
def test_the_admin_scope_needs_the_admin_key(ask, method, path):
    asked = ask(api_key="a", admin_api_key="b")
    assert [asked(method, path, headers=key).status_code for key in ({}, {"x-api-key": "a"})] == [401, 403]
    assert asked(method, path, headers={"x-api-key": "b"}).status_code == 200
    assert ask()(method, path).status_code == 403  # nobody says that it comes from this machine
    assert ask(host="127.0.0.1")(method, path, headers={"host": "localhost"}).status_code == 200


def test_clients_send_their_key_where_their_api_has_it(llm, options):
    def ask(spec, **headers):
        app = served_app(llm, options(api_key="a", admin_api_key="b"), {spec: Own()})

        async def go():
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client:
                paths = ("/own/plain", "/v1/own")
                return [(await client.get(path, headers=headers)).status_code for path in paths]

        return asyncio.run(go())

    spec = SPEC.replace(key_headers=("API-Key",))
    sent = [{"api-key": "a"}, {"api-key": "b"}, {"api-key": "c"}, {"api-key": ""}, {"x-api-key": "a"}]
    assert [ask(spec, **headers) for headers in sent] == [[200, 403], [200, 200], [401, 401], [401, 401], [200, 403]]
    assert ask(SPEC, **{"api-key": "a"}) == [401, 401]


@pytest.mark.parametrize("header", ["cookie", "host", "sec-websocket-key", "api key", "key:", ""])
def test_keys_are_in_no_header_that_browsers_send_by_themselves(header):
    with pytest.raises(PluginError, match=r"CORE-P130 .*cannot have keys in the header"):
        RouteTable().registry("own", "'own'", SPEC.replace(key_headers=(header,)))


def test_a_route_drives_what_routes_may_and_asks_for_nothing_else_of_core():
    made, table = [], RouteTable(driven=lambda kind: made.append(kind) or ("client",))
    table.chosen = lambda kind: ("defined", kind)
    registry = table.registry("own", "'own'", SPEC.replace(drives=("core.tool_servers",)))
    assert registry.chosen("core.tool_servers") == ("client",) and made == ["core.tool_servers"]
    assert registry.chosen("acme.things") == ("defined", "acme.things")
    assert table.registry("other", "'other'", SPEC.replace(mounts=())).chosen("core.tool_servers")[0] == "defined"
    with pytest.raises(PluginError, match=r"CORE-P132 .*cannot drive 'core.schedulers': core.tool_servers can be"):
        RouteTable().registry("own", "'own'", SPEC.replace(drives=("core.schedulers",)))


def test_other_scopes(ask):
    asked = ask(api_key="a", admin_api_key="b")
    assert [asked("GET", path).status_code for path in ("/own/plain", "/own/open")] == [401, 200]
    assert asked("POST", "/own/open").status_code == 401
    assert asked("GET", "/own/plain", headers={"x-api-key": "a"}).status_code == 200


def test_pages_of_other_origins_do_not_reach_the_admin_scope(ask):
    asked = ask(api_key="a", admin_api_key="b", allowed_origins=[PAGE])
    preflight = {"origin": PAGE, "access-control-request-method": "POST"}
    assert asked("OPTIONS", "/own/closed", headers=preflight).status_code == 401
    answer = asked("POST", "/own/closed", headers={"origin": PAGE, "x-api-key": "b"})
    assert answer.status_code == 200 and "access-control-allow-origin" not in answer.headers
    assert asked("OPTIONS", "/own/plain", headers=preflight).headers["access-control-allow-origin"] == PAGE


def test_a_path_has_one_scope():
    registry = RouteTable().registry("own", "'own'", SPEC)
    registry.add("POST", "/own/x", None, scope="admin")
    with pytest.raises(PluginError, match="all routes of a path have the admin scope, or none"):
        registry.add("GET", "/own/x", None)


def test_no_scope_for_a_path_that_core_answers():
    class Closes(Own):
        def declare(self, registry):
            registry.add("POST", "/v1/models", self.answer, scope="admin")

    table = RouteTable()
    Closes().declare(table.registry("own", "'own'", SPEC.replace(mounts=("/v1/models",))))
    with pytest.raises(PluginError, match="core answers this path"):
        check_free(table.routes, [SimpleNamespace(path="/v1/models", methods={"GET"})])


def layered(before):
    def layer(app):
        async def around(scope, receive, send):
            before(scope)
            await app(scope, receive, send)

        return around

    return layer


def test_a_layer_sees_what_has_passed_the_gate(ask):
    seen = []
    asked = ask(layered(lambda scope: seen.append(scope["path"])), api_key="a")
    assert asked("GET", "/own/plain").status_code == 401 and seen == []
    assert asked("GET", "/own/plain", headers={"x-api-key": "a"}).status_code == 200
    assert asked("GET", "/own/fails", headers={"x-api-key": "a"}).status_code == 418
    assert seen == ["/own/plain", "/own/fails"]


def raising(error):
    def before(scope):
        raise error

    return before


def test_what_a_layer_raises_is_its_fault(ask, caplog):
    answer = ask(layered(raising(ValueError("secret"))))("GET", "/v1/models")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "CORE-P108")
    assert "secret" not in answer.text and "CORE-P108 route plugin 'own' (tested): its layer raised" in caplog.text
    assert ask(layered(raising(RequestError("no", status=429))))("GET", "/v1/models").status_code == 429


def test_what_is_raised_behind_a_layer_is_not(fake, options, caplog):
    plugins = {SPEC: Own(layered(lambda _: None)), OPENAI: OpenAIRoutes({})}
    app = served_app(fake(fail_at=0, failure=RuntimeError("inside")), options(), plugins)

    async def go():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client:
            return await client.post("/v1/completions", json={"prompt": "x"})

    answer = asyncio.run(go())
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert "its layer raised" not in caplog.text


def test_a_layer_that_cannot_be_made_stops_the_start(llm, options):
    with pytest.raises(PluginError, match="CORE-P108"):
        served_app(llm, options(), {SPEC: Own(lambda app: 1 / 0)})


def test_a_plugin_may_want_no_layer(ask):
    assert ask(lambda app: app)("GET", "/own/plain").status_code == 200
