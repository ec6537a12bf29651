"""Web sockets of routes of plugins, over real connections: who may open one, what goes through, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from types import SimpleNamespace

import httpx
import pytest
import uvloop
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from core.api import ChatRequest, Dialect, PluginError, RequestError, RouteResponse, RouteSpec
from core.server.http import HttpServer
from core.server.listen import bind
from core.server.plugin_routes.table import RouteTable
from core.server.supervisor import Supervisor
from core_testing.served import served_app

SPEC = RouteSpec(name="talk", impl="x:Y", api=1, summary="s", key_headers=("talk-key",))
WAIT = 20


class Talk:
    """A plugin with a socket of each sort."""

    def __init__(self):
        self.ends = []

    def declare(self, registry):
        registry.dialect(Dialect(lambda error: {"oh": error.message, "code": error.code}))
        registry.add("GET", "/x/talk/echo/{room}", self.page)
        registry.socket("/x/talk/echo/{room}", self.echo)
        registry.socket("/x/talk/chat", self.chat)
        registry.socket("/x/talk/refuses", self.refuses)
        registry.socket("/x/talk/silent", self.silent)
        registry.socket("/x/talk/fails", self.fails)
        registry.socket("/x/talk/floods", self.floods)
        registry.socket("/x/talk/admin", self.echo, scope="admin")

    def bind(self, client):
        self.client = client

    async def page(self, request):
        return RouteResponse(b"1")

    async def echo(self, ws):
        await ws.accept("b" if "b" in ws.subprotocols else None)
        await ws.send(json.dumps([ws.path, dict(ws.path_params), dict(ws.query), ws.headers.get("x-me")]))
        while (said := await ws.receive()) is not None:
            if said == "close":
                await ws.close(4001, "as you say")
            else:
                await ws.send(said)
        self.ends.append("left")

    async def chat(self, ws):
        await ws.accept()
        try:
            while (said := await ws.receive()) is not None:
                await self.answer(ws, ChatRequest(messages=[{"role": "user", "content": said}]))
                await ws.send("done")
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise
        self.ends.append("left")

    async def answer(self, ws, request):
        answer, texts = await self.client.open(request, prefix="talk"), []

        def take(deltas):
            texts.extend(event.text for delta in deltas for event in delta.events)
            return False

        async def more():
            while texts:
                await ws.send(json.dumps({"delta": texts.pop(0)}))
            return True

        await answer.run(take, more)
        await more()

    async def refuses(self, ws):
        raise RequestError("not today", code="closed", status=409)

    async def silent(self, ws):
        pass

    async def fails(self, ws):
        if "early" not in ws.query:
            await ws.accept()
            await ws.receive()
        if "theirs" in ws.query:
            raise RequestError("no such voice")
        raise KeyError("secret")

    async def floods(self, ws):
        await ws.accept()
        try:
            while True:
                await ws.send("x" * 1000)
        finally:
            self.ends.append("ended")


@pytest.fixture
def talk(options):
    @contextlib.contextmanager
    def serve(llm, **server):
        settings, plugin = options(**server), Talk()
        app, listener, started = served_app(llm, settings, {SPEC: plugin}), bind(settings.server), threading.Event()
        state = app.state.core
        assert state.has_sockets
        http, loops = HttpServer(app, started.set, message_bytes=settings.server.max_body_bytes), []

        async def main():
            loops.append(asyncio.get_running_loop())
            await http.serve(sockets=[listener.socket])

        def run():
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(main())

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert started.wait(WAIT)
        try:
            port = listener.socket.getsockname()[1]
            yield SimpleNamespace(
                port=port, plugin=plugin, state=state, http=http, loop=loops[0], url=f"ws://127.0.0.1:{port}"
            )
        finally:
            llm.held.set()
            http.should_exit = http.force_exit = True
            thread.join(WAIT)
            listener.close()

    return serve


def opened(served, path, **given):
    return connect(served.url + path, open_timeout=WAIT, close_timeout=WAIT, proxy=None, **given)


def closed(ws):
    """Return how a socket is closed."""
    with pytest.raises(ConnectionClosed) as ended:
        while True:
            ws.recv(WAIT)
    return ended.value.rcvd.code, ended.value.rcvd.reason


def refused(served, path, **given):
    with pytest.raises(InvalidStatus) as answer:
        opened(served, path, **given)
    response = answer.value.response
    return response.status_code, json.loads(response.body)


def test_messages_go_both_ways(talk, llm, until, caplog):
    caplog.set_level("INFO")
    with talk(llm, log_requests=True) as served:
        with opened(served, "/x/talk/echo/a?b=c", additional_headers={"x-me": "me"}, subprotocols=["a", "b"]) as ws:
            assert ws.subprotocol == "b"
            assert ws.response.headers["x-request-id"]
            assert json.loads(ws.recv(WAIT)) == ["/x/talk/echo/a", {"room": "a"}, {"b": "c"}, "me"]
            for said in ("hi", b"\x00\xff", "", "\u2603" * 1000, b"x" * 150_000):
                ws.send(said)
                assert ws.recv(WAIT) == said
        until(lambda: served.plugin.ends == ["left"])
        until(lambda: "/x/talk/echo/{room} 101" in caplog.text)
        assert not served.state.lifecycle.sockets
        assert b'route="/x/talk/echo/{room}",status="101"' in served.state.metrics.render()
        assert httpx.get(f"http://127.0.0.1:{served.port}/x/talk/echo/a").text == "1"


def test_a_chat_streams_deltas(talk, llm):
    llm.reply = "Hello"
    with talk(llm) as served, opened(served, "/x/talk/chat") as ws:
        for _ in range(2):
            ws.send("hi")
            said = [ws.recv(WAIT) for _ in range(6)]
            assert "".join(json.loads(one)["delta"] for one in said[:-1]) == "Hello" and said[-1] == "done"


def test_a_plugin_closes_and_refuses(talk, llm, caplog):
    with talk(llm) as served:
        with opened(served, "/x/talk/echo/a") as ws:
            ws.send("close")
            assert closed(ws) == (4001, "as you say")
        assert refused(served, "/x/talk/refuses") == (409, {"oh": "not today", "code": "closed"})
        assert refused(served, "/x/talk/silent")[0] == 403
        assert refused(served, "/x/talk/none")[0] == 404
    assert "handshake" not in caplog.text


def test_what_the_endpoint_raises_closes(talk, llm, caplog):
    with talk(llm) as served:
        with opened(served, "/x/talk/fails?theirs=1") as ws:
            ws.send("")
            assert closed(ws) == (1008, "no such voice")
        assert "CORE-P108" not in caplog.text
        with opened(served, "/x/talk/fails") as ws:
            ws.send("")
            assert closed(ws) == (1011, "")
        assert "CORE-P108 route plugin 'talk' (tested): socket /x/talk/fails raised KeyError" in caplog.text
        assert refused(served, "/x/talk/fails?early=1")[0] == 500
        llm.healthy = False
        with opened(served, "/x/talk/chat") as ws:
            ws.send("hi")
            assert closed(ws)[0] == 1013


def test_messages_are_bounded(talk, llm):
    with talk(llm, max_body_bytes=2000) as served, opened(served, "/x/talk/echo/a") as ws:
        ws.recv(WAIT)
        ws.send("x" * 2000)
        assert len(ws.recv(WAIT)) == 2000
        ws.send("x" * 2001)
        assert closed(ws)[0] == 1009


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Bearer k"}, 101),
        ({"x-api-key": "k"}, 101),
        ({"talk-key": "k"}, 101),
        ({"sec-websocket-protocol": "k"}, 401),
    ],
)
def test_sockets_need_the_key(talk, llm, headers, status):
    with talk(llm, api_key="k") as served:
        if status == 101:
            with opened(served, "/x/talk/echo/a", additional_headers=headers) as ws:
                ws.recv(WAIT)
        else:
            found, body = refused(served, "/x/talk/echo/a", additional_headers=headers)
            assert (found, set(body)) == (status, {"oh", "code"})
            assert refused(served, "/x/talk/admin", additional_headers={"x-api-key": "k"})[0] == 403


def test_pages_of_other_origins_open_no_sockets(talk, llm):
    with talk(llm, allowed_origins=["http://app.example"]) as served:
        assert refused(served, "/x/talk/echo/a", origin="http://evil.example")[0] == 403
        for origin in ("http://app.example", f"http://127.0.0.1:{served.port}"):
            with opened(served, "/x/talk/echo/a", origin=origin) as ws:
                ws.recv(WAIT)
        assert refused(served, "/x/talk/admin", origin="http://app.example")[0] == 403


def test_a_client_that_leaves_ends_the_generation(talk, llm, until, caplog):
    llm.hold_at = 1
    with talk(llm) as served:
        ws = opened(served, "/x/talk/chat")
        ws.send("hi")
        ws.recv(WAIT)
        until(lambda: llm.running == 1)
        ws.close()
        until(lambda: llm.running == 0 and served.plugin.ends == ["cancelled"])
        ws = opened(served, "/x/talk/floods")
        ws.recv(WAIT)
        ws.socket.close()
        until(lambda: served.plugin.ends == ["cancelled", "ended"])
        until(lambda: not served.state.lifecycle.sockets)
    assert "CORE-P108" not in caplog.text and "Exception in ASGI" not in caplog.text


@pytest.mark.parametrize("drain", [30.0, 0.1])
def test_a_drain_ends_sockets_with_their_answers(talk, llm, until, drain):
    llm.hold_at = 1
    with talk(llm, drain_timeout=drain) as served:
        idle, busy = opened(served, "/x/talk/echo/a"), opened(served, "/x/talk/chat")
        busy.send("hi")
        busy.recv(WAIT)
        until(lambda: len(served.state.lifecycle.work) == 1)
        served.loop.call_soon_threadsafe(lambda: Supervisor(served.http, served.state).drain())
        until(lambda: served.state.lifecycle.draining)
        assert refused(served, "/x/talk/echo/a")[0] == 503
        if drain > 1:
            llm.held.set()
            said = [busy.recv(WAIT) for _ in range(5)]
            assert said[-1] == "done"
        assert (closed(busy)[0], closed(idle)[0]) == (1001, 1001)


def figure(served, name):
    (line,) = [one for one in served.state.metrics.render().decode().splitlines() if one.startswith(f"{name}{{")]
    return float(line.rpartition(" ")[2])


def test_so_many_sockets_are_open_at_once(talk, llm, until):
    full = 'core_admission_rejections_total{model_name="acme/tiny",reason="sockets_full"} '
    with talk(llm, max_sockets=2, api_key="k") as served:
        key = {"additional_headers": {"x-api-key": "k"}}
        with opened(served, "/x/talk/echo/a", **key) as one, opened(served, "/x/talk/chat", **key) as two:
            one.recv(WAIT)
            assert figure(served, "core_num_sockets") == 2
            with pytest.raises(InvalidStatus) as answer:
                opened(served, "/x/talk/echo/b", **key)
            response = answer.value.response
            assert (response.status_code, response.headers["retry-after"]) == (503, "5")
            assert json.loads(response.body)["code"] == "sockets_full"
            assert refused(served, "/x/talk/echo/b")[0] == 401, "who may not ask is not told of the bound"
            until(lambda: full + "1.0" in served.state.metrics.render().decode())
            one.send("still")
            assert one.recv(WAIT) == "still" and two.close() is None
            until(lambda: figure(served, "core_num_sockets") == 1)
            with opened(served, "/x/talk/echo/b", **key) as three:
                three.recv(WAIT)
        until(lambda: figure(served, "core_num_sockets") == 0)


def test_sockets_that_are_refused_take_no_place(talk, llm):
    with talk(llm, max_sockets=1) as served:
        for _ in range(3):
            assert refused(served, "/x/talk/refuses")[0] == 409
            assert refused(served, "/x/talk/fails?early=1")[0] == 500
        with opened(served, "/x/talk/echo/a") as ws:
            ws.recv(WAIT)


def test_a_server_may_have_no_sockets_at_all(talk, llm):
    with talk(llm, max_sockets=0) as served:
        assert refused(served, "/x/talk/echo/a")[0] == 503


def test_what_no_socket_begins_with_is_a_request(talk, llm):
    upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\nHost: a\r\n"
    whole = upgrade + "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    heads = {
        f"POST /x/talk/chat HTTP/1.1\r\n{whole}Content-Length: 0\r\n": b"404",
        f"GET /x/talk/chat HTTP/1.1\r\n{upgrade}": b"400",
        f"GET /x/talk/chat HTTP/1.1\r\n{whole}X-A: {'a' * 9000}\r\n": b"431",
        f"GET /x/talk/chat HTTP/1.1\r\n{whole}Content-Length: 3\r\n": b"404",
        f"GET /x/talk/chat HTTP/1.1\r\n{whole}" + "X-A: a\r\n" * 110: b"431",
        f"GET /x/talk/chat HTTP/1.1\r\n{whole}": b"101",
    }
    with talk(llm) as served:
        for head, status in heads.items():
            with socket.create_connection(("127.0.0.1", served.port), WAIT) as sock:
                sock.sendall(head.encode() + b"\r\n")
                assert sock.recv(100).startswith(b"HTTP/1.1 " + status), head[:200]


def test_a_socket_begins_on_a_connection_that_was_used(talk, llm):
    head = b"Connection: upgrade\r\nUpgrade: websocket\r\nHost: a\r\nSec-WebSocket-Version: 13\r\n"
    head += b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    with talk(llm) as served, socket.create_connection(("127.0.0.1", served.port), WAIT) as sock:
        sock.sendall(b"GET /x/talk/echo/a HTTP/1.1\r\nHost: a\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        sock.sendall(b"GET /x/talk/chat HTTP/1.1\r\n" + head)
        assert sock.recv(1000).startswith(b"HTTP/1.1 101")


def test_a_server_that_cannot_answer_a_refusal_closes(llm, options):
    app, sent = served_app(llm, options(api_key="k"), {SPEC: Talk()}), []

    async def send(message):
        sent.append(message)

    asyncio.run(app({"type": "websocket", "path": "/x/talk/chat", "headers": []}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    ("path", "given", "why"),
    [
        ("/v1/realtime", {}, "lie under"),
        ("/x/talk/chat", {}, "has declared it"),
        ("/x/talk/{a}/b", {"scope": "admin"}, "has no parameters"),
        ("/x/talk/a", {"scope": "public"}, "public"),
    ],
)
def test_sockets_that_cannot_be(path, given, why):
    registry = RouteTable().registry("talk", "'talk' (acme 1)", SPEC)
    Talk().declare(registry)
    with pytest.raises(PluginError, match=why):
        registry.socket(path, Talk().echo, **given)
