"""What the contract gives operators: to a stranger's route, for longer than clients stay; and a server without it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from dataclasses import fields

import pytest
from core_plugin_admin.manifest import ADMIN, MOUNTS
from core_plugin_admin.routes import ROUTES
from core_plugin_openai.manifest import OPENAI
from core_plugin_openai.routes import OpenAIRoutes

from core import __version__
from core.api import EngineStats, RouteResponse, RouteSpec
from core.api.operator import RECENT_LINES
from core.config.fields import section_help
from core.engine.messages import Stats
from core.logs import RECENT_LINES as REMEMBERED
from core.server.secrets import HIDDEN
from core_testing.served import served_app

SPEC = RouteSpec(name="desk", impl="x:Y", api=1, summary="s", mounts=("/desk",))


class Desk:
    """A stranger's route for operators."""

    def declare(self, registry):
        registry.add("POST", "/desk/stop", self.stop, scope="admin")

    def bind(self, client):
        self.operator = client.operator

    async def stop(self, request):
        found = await self.operator.abort()
        self.operator.drain()
        return RouteResponse(json.dumps(found).encode())


@pytest.fixture
def named(fake):
    """A front end whose requests have names, and which can be paused."""

    class Named(fake):
        def __post_init__(self):
            super().__post_init__()
            self.request_ids, self.ended, self.pausing, self.rests = ["a-0", "a-1", "b"], [], False, threading.Event()

        async def abort(self, name):
            self.ended.append(name)

        async def pause_generation(self, mode="abort", *, clear_cache=True):
            self.pausing = True
            while not self.rests.is_set():
                await asyncio.sleep(0.005)
            self.paused = True

        async def resume_generation(self):
            self.paused = False

    return Named()


def test_a_strangers_route_sees_and_does_what_an_operator_may(named, options, api):
    desk = Desk()
    app = served_app(named, options(admin_api_key="sk-admin"), {SPEC: desk})
    state, operator = app.state.core, desk.operator
    state.shown = {"a": "cmpl-1"}
    assert (operator.version, operator.ready, operator.paused, operator.draining) == (__version__, True, False, False)
    assert (operator.restarts, operator.lost_weights, operator.weight_transfer, operator.in_flight) == (
        0,
        None,
        None,
        0,
    )
    assert operator.running == ["cmpl-1", "b"]
    assert operator.options["server"]["admin_api_key"] == HIDDEN and set(operator.options) == set(section_help())
    assert "forward" in operator.phases
    assert asyncio.run(operator.abort(["b", "nobody"])) == ["b"] and named.ended == ["b"]
    assert type(api)(app).post("/desk/stop").status_code == 401
    answer = type(api)(app, {"x-api-key": "sk-admin"}).post("/desk/stop")
    assert answer.json() == ["cmpl-1", "b"] and operator.draining and not operator.ready


def test_figures_of_the_engine_are_all_told():
    assert [one.name for one in fields(EngineStats)] == list(Stats.__struct_fields__)
    assert RECENT_LINES == REMEMBERED


def test_the_manifest_claims_what_is_declared():
    assert tuple(route.path for route in ROUTES) == MOUNTS == ADMIN.mounts


def test_what_an_operator_has_begun_goes_on_without_them(live, named, until, caplog):
    with live(named) as server:
        with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
            sock.sendall(b"POST /pause HTTP/1.1\r\nhost: localhost\r\n\r\n")
            until(lambda: named.pausing)
        until(lambda: "499" in server.state.metrics.render().decode())
        assert not named.paused
        named.rests.set()
        until(lambda: named.paused)
    assert "CORE-P108" not in caplog.text


def test_a_client_that_leaves_in_its_body_is_no_fault_of_a_plugin(live, named, until, caplog):
    with live(named) as server:
        with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
            head = b"POST /pause HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            sock.sendall(head + b"content-length: 20\r\n\r\n{")
        until(lambda: "499" in server.state.metrics.render().decode())
        assert not named.pausing
    assert "CORE-P108" not in caplog.text


def test_without_the_plugin_its_paths_are_not_there(named, options, api):
    app = served_app(named, options(), {OPENAI: OpenAIRoutes({})})
    bare = type(api)(app, {"host": "localhost"})
    assert {bare.request(route.method, route.path).status_code for route in ROUTES} == {404}
    assert all(
        bare.get(path).status_code == 200 for path in ("/health", "/ready", "/metrics", "/load", "/core/plugins")
    )
    app.state.core.lifecycle.drain()
    assert bare.get("/ready").json()["error"]["code"] == "draining"
    assert bare.post("/v1/completions", {"prompt": "a"}).status_code == 503
