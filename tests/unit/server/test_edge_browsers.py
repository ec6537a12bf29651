"""Web pages of other origins: preflights, readable answers and refusals, and what stays closed to them."""

from __future__ import annotations

import httpx
import pytest

from core.api import PluginError, RouteSpec
from core.api.errors import ConfigError
from core.options.server import ServerOptions
from core.server.browsers import EXPOSED
from core.server.edge import check_origins
from core_testing.served import served_app

KEY, ADMIN = "sk-secret", "sk-admin"
PAGE, OTHER = "https://app.example.com", "https://evil.example.com"
ASKING = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "Hi"}]}
BEARER = {"authorization": f"Bearer {KEY}"}
ALLOW = "access-control-allow-origin"


@pytest.fixture
def page(build, llm):
    """A server with keys that lets one page in."""
    return build(llm, api_key=KEY, admin_api_key=ADMIN, allowed_origins=[PAGE], max_body_bytes=1024)


def preflight(api, path, origin=PAGE, **more):
    return api.request("OPTIONS", path, headers={"origin": origin, **ASKING, **more})


def test_nobody_is_let_in_by_default(build, llm):
    api = build(llm)
    assert preflight(api, CHAT).status_code == 405
    answer = api.post(CHAT, BODY, headers={"origin": PAGE})
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_a_preflight_needs_no_key(page, llm):
    answer = preflight(page, CHAT)
    assert answer.status_code == 200
    assert answer.headers[ALLOW] == PAGE
    assert answer.headers["access-control-allow-headers"] == ASKING["access-control-request-headers"]
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "origin" in answer.headers["vary"].lower()
    assert llm.requests == []


def test_another_page_is_not_let_in(page):
    answer = preflight(page, CHAT, OTHER)
    assert answer.status_code == 400 and ALLOW not in answer.headers
    answer = page.post(CHAT, BODY, headers={"origin": OTHER, **BEARER})
    assert ALLOW not in answer.headers


def test_an_answer_can_be_read_with_its_headers(page):
    answer = page.post(CHAT, {**BODY, "made_up": 1}, headers={"origin": PAGE, **BEARER})
    assert answer.status_code == 200 and answer.headers[ALLOW] == PAGE
    exposed = answer.headers["access-control-expose-headers"].split(", ")
    assert {"x-request-id", "x-core-ignored-fields", "x-core-response-stored"} <= set(exposed)
    assert {"x-stream-id", "retry-after"} <= set(exposed)
    assert answer.headers["x-core-ignored-fields"] == "made_up"
    assert "access-control-allow-credentials" not in answer.headers


def test_headers_of_plugins_can_be_read_where_their_descriptors_say_so(llm, options, api):
    def exposed(*plugins):
        app = served_app(llm, options(allowed_origins=[PAGE]), dict(plugins))
        answer = type(api)(app).get("/health", headers={"origin": PAGE})
        return answer.headers["access-control-expose-headers"].split(", ")

    class Quiet:
        def declare(self, registry):
            pass

        def bind(self, client):
            pass

    spec = RouteSpec(name="quiet", impl="x:Y", api=1, summary="s")
    assert exposed((spec, Quiet())) == list(EXPOSED)
    assert exposed((spec.replace(exposed_headers=("X-Quiet", "x-less")), Quiet())) == [*EXPOSED, "x-less", "x-quiet"]
    for header in ("set-cookie", "x quiet", "", "*", "x:y"):
        with pytest.raises(PluginError, match=r"CORE-P130 .*cannot have the header"):
            exposed((spec.replace(exposed_headers=(header,)), Quiet()))


@pytest.mark.parametrize(
    ("status", "path", "content", "headers"),
    [
        (401, CHAT, b"{}", {}),
        (400, CHAT, b"{", BEARER),
        (413, CHAT, b"x" * 2000, BEARER),
        (404, "/v1/nothing", b"{}", BEARER),
    ],
)
def test_a_refusal_can_be_read(page, status, path, content, headers):
    answer = page.post(path, content=content, headers={"origin": PAGE, "content-type": "application/json", **headers})
    assert answer.status_code == status
    assert answer.headers[ALLOW] == PAGE
    assert answer.json()["error"]["message"]


def test_a_failure_can_be_read(build, fake, engine_error):
    api = build(fake(fail_at=0, failure=engine_error), allowed_origins=[PAGE])
    answer = api.post(CHAT, BODY, headers={"origin": PAGE})
    assert answer.status_code == 503 and answer.headers[ALLOW] == PAGE
    api = build(fake(fail_at=0, failure=RuntimeError("inside")), allowed_origins=[PAGE])
    answer = api.post(CHAT, BODY, headers={"origin": PAGE})
    assert answer.status_code == 500 and answer.headers[ALLOW] == PAGE


@pytest.mark.parametrize("path", ["/pause", "/server_info", "/v1/streams"])
def test_admin_routes_stay_closed_to_pages(page, path):
    answer = preflight(page, path)
    assert answer.status_code == 401 and ALLOW not in answer.headers
    answer = page.get("/server_info", headers={"origin": PAGE, "authorization": f"Bearer {ADMIN}"})
    assert answer.status_code == 200 and ALLOW not in answer.headers


def test_a_prefix_opens_no_admin_route_to_pages(build, llm):
    api = build(llm, api_key=KEY, admin_api_key=ADMIN, allowed_origins=["*"], root_path="/llm")
    assert preflight(api, f"/llm{CHAT}").headers[ALLOW] == "*"
    for path in ("/pause", "/llm/pause", "/llm/llm/pause"):
        answer = preflight(api, path)
        assert (answer.status_code == 200) == (path == "/llm/llm/pause"), path  # which is no route at all
        assert (ALLOW in answer.headers) == (path == "/llm/llm/pause")


def test_a_local_server_does_not_serve_admin_routes_to_an_allowed_page(build, llm):
    api = build(llm, allowed_origins=[PAGE])
    assert api.get("/server_info", headers={"host": "localhost"}).status_code == 200
    assert api.get("/server_info", headers={"host": "localhost", "origin": PAGE}).status_code == 403


def test_credentials_methods_and_headers(build, llm):
    options = {"allow_credentials": True, "allowed_methods": ["get"], "allowed_headers": ["Authorization"]}
    api = build(llm, allowed_origins=[PAGE], **options)
    assert preflight(api, CHAT).status_code == 400
    named = {"access-control-request-method": "GET", "access-control-request-headers": "authorization"}
    answer = preflight(api, "/v1/models", **named)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-credentials"] == "true" and answer.headers[ALLOW] == PAGE
    assert preflight(api, "/v1/models", **{**named, "access-control-request-headers": "x-own"}).status_code == 400


def test_a_stream_goes_past_this_layer(live, fake, monkeypatch):
    from core.server.browsers import Browsers

    seen = []
    plain = Browsers.send

    async def send(self, message, send, request_headers):
        seen.append(message["type"])
        await plain(self, message, send, request_headers)

    monkeypatch.setattr(Browsers, "send", send)
    with live(fake(reply="abcdefgh"), allowed_origins=["*"], root_path="/llm") as server:
        url = f"{server.url}/llm{CHAT}"
        answer = httpx.post(url, json={**BODY, "stream": True}, headers={"origin": PAGE}, trust_env=False)
    assert answer.headers[ALLOW] == "*"
    assert answer.text.count("data: ") == 8 + 2 and answer.text.endswith("data: [DONE]\n\n")
    assert seen == ["http.response.start"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"allowed_origins": ["*"], "allow_credentials": True}, "--allow-credentials"),
        ({"allowed_origins": [PAGE, "*"], "allow_credentials": True}, "--allow-credentials"),
        ({"allowed_origins": [PAGE + "/"]}, PAGE + "/"),
        ({"allowed_origins": ["https://*.example.com"]}, "https://*.example.com"),
        ({"allowed_origins": ["null"]}, "'null'"),
        ({"allowed_origins": ["app.example.com"]}, "'app.example.com'"),
        ({"allowed_origins": ["*"], "allowed_headers": ["a b"]}, "--allowed-headers"),
        ({"allow_credentials": True}, "--allow-credentials means nothing"),
        ({"allowed_methods": ["GET"]}, "--allowed-methods means nothing"),
    ],
)
def test_what_cannot_be_meant_stops_the_start(build, llm, options, said):
    with pytest.raises(ConfigError, match="CORE-C173") as caught:
        check_origins(ServerOptions(**options))
    assert said in caught.value.message
    with pytest.raises(ConfigError, match="CORE-C173"):
        build(llm, **options)


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://[::1]:8080", "https://10.0.0.1", "*"])
def test_what_browsers_send_is_taken(origin):
    check_origins(ServerOptions(allowed_origins=[origin]))
