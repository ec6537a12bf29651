"""Keys: every route needs one unless it is on the public list, however the path is written."""

import asyncio
import socket

import pytest

from core.options.server import ServerOptions
from core.server.auth import PUBLIC_PATHS, KeyCheck, is_local

KEY = "sk-secret"


@pytest.fixture(scope="module")
def server(live, fake):
    with live(fake(), api_key=KEY) as running:
        yield running


def routes(app):
    found = []

    def walk(items):
        for route in items:
            if hasattr(route, "path") and getattr(route, "methods", None):
                found.extend((method, route.path) for method in route.methods)
            walk(getattr(getattr(route, "original_router", None), "routes", ()))

    walk(app.routes)
    return found


def test_every_route_is_closed_but_the_public_ones(build, llm):
    api = build(llm, api_key=KEY)
    found = routes(api.app)
    assert len(found) >= 12
    for method, path in found:
        path = path.replace("{model:path}", "m")
        status = api.request(method, path).status_code
        assert (status == 401) == (path not in PUBLIC_PATHS), (method, path, status)
    assert {path for _, path in found} >= PUBLIC_PATHS
    assert llm.requests == []


def test_both_ways_to_send_a_key(build, llm):
    api = build(llm, api_key=KEY)
    for headers in ({"authorization": f"Bearer {KEY}"}, {"authorization": f"bearer  {KEY} "}, {"x-api-key": KEY}):
        assert api.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": KEY},
        {"authorization": f"Basic {KEY}"},
        {"authorization": "Bearer"},
        {"x-api-key": ""},
        {"authorization": "Bearer sk-secre"},
        {"authorization": f"Bearer {KEY}x"},
        {"x-api-key": "\u00e9"},
        {"authorization": "Bearer wrong", "x-api-key": KEY},
    ],
    ids=str,
)
def test_wrong_keys(build, llm, headers):
    response = build(llm, api_key=KEY).get("/v1/models", headers={k: v.encode() for k, v in headers.items()})
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"]["code"] in {"missing_api_key", "invalid_api_key"}
    assert KEY not in response.text


ADMIN = "sk-admin"
ADMIN_PATHS = {"/pause", "/resume", "/is_paused", "/server_info", "/update_weights", "/v1/load_lora_adapter"}


def admin_routes(api):
    paths = api.app.state.core.admin_paths
    assert paths >= ADMIN_PATHS
    return [(method, path) for method, path in routes(api.app) if path in paths]


def test_admin_routes_need_the_admin_key(build, llm):
    api = build(llm, api_key=KEY, admin_api_key=ADMIN)
    for method, path in admin_routes(api):
        assert api.request(method, path).status_code == 401
        assert api.request(method, path, headers={"x-api-key": "sk-other"}).status_code == 401
        refused = api.request(method, path, headers={"x-api-key": KEY})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "admin_scope")
    assert api.get("/is_sleeping", headers={"x-api-key": ADMIN}).status_code == 200
    assert api.get("/v1/models", headers={"authorization": f"Bearer {ADMIN}"}).status_code == 200
    assert api.get("/v1/models", headers={"x-api-key": "sk-other"}).status_code == 401


@pytest.mark.parametrize("options", [{"api_key": KEY}, {"host": "0.0.0.0"}], ids=["key", "address"])
def test_admin_routes_are_closed_without_an_admin_key(build, llm, options):
    api = build(llm, **options)
    for method, path in admin_routes(api):
        refused = api.request(method, path, headers={"x-api-key": KEY, "host": "127.0.0.1"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "admin_closed"), path
        assert "--admin-api-key" in refused.json()["error"]["message"]


def test_an_admin_key_alone_leaves_the_other_routes_open(build, llm):
    api = build(llm, admin_api_key=ADMIN)
    assert api.get("/v1/models").status_code == 200
    assert api.get("/is_sleeping").status_code == 401
    assert api.get("/is_sleeping", headers={"x-api-key": ADMIN}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:8000"}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"host": "evil.example:8000"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "[::1].evil.example"}, 403),
        ({"host": "localhost", "origin": "http://localhost:3000"}, 403),
        ({"host": "localhost", "x-forwarded-for": "10.0.0.1"}, 403),
        ({"host": "localhost", "via": "1.1 proxy"}, 403),
        ({"host": "localhost", "sec-fetch-site": "cross-site"}, 403),
    ],
    ids=str,
)
def test_without_keys_admin_routes_serve_local_processes_not_browsers_or_proxies(build, llm, headers, status):
    assert build(llm, host="127.0.0.1").get("/is_sleeping", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ({"host": "127.0.0.1"}, True),
        ({"host": "127.8.0.1"}, True),
        ({"host": "::1"}, True),
        ({"host": "localhost"}, True),
        ({"host": "0.0.0.0", "uds": "/run/core.sock"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"host": "::"}, False),
        ({"host": ""}, False),
        ({"host": "10.0.0.1"}, False),
        ({"host": "localhost.example"}, False),
    ],
    ids=str,
)
def test_which_addresses_are_local(address, local):
    assert is_local(ServerOptions(**address)) is local


def test_an_open_server_asks_nothing(api):
    assert api.get("/v1/models").status_code == 200


def test_digests_are_compared_not_keys(monkeypatch):
    seen = []
    monkeypatch.setattr("core.server.auth.hmac.compare_digest", lambda a, b: seen.append((a, b)) or a == b)
    check = KeyCheck(KEY)
    for key in (b"a", b"a" * 1000, KEY.encode()):
        check.check("/v1/models", [(b"x-api-key", key)])
    assert [len(mine) for mine, _ in seen] == [32, 32, 32]
    assert len({theirs for _, theirs in seen}) == 1


@pytest.mark.parametrize(
    "target",
    [
        "/v1/models",
        "//v1/models",
        "/v1%2fmodels",
        "/V1/models",
        "/health/../v1/models",
        "/health;/../v1/models",
        "/health%2f..%2fv1%2fmodels",
        "/v1/models?/health",
        "http://x/v1/models",
        "/metrics",
        "/health/",
        "//health",
        "/openapi.json",
        "/ready/x",
        "/%68ealth/x",
    ],
)
def test_raw_targets_without_a_key(server, target):
    with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
        sock.sendall(f"GET {target} HTTP/1.1\r\nHost: /health\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while data := sock.recv(65536):
            answer += data
        assert answer.startswith(b"HTTP/1.1 401"), answer[:100]


def test_websockets_are_refused(api):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    asyncio.run(api.app({"type": "websocket", "path": "/v1/realtime", "headers": []}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
