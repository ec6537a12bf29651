"""Routes of plugins outside `/x/`: claims, assets, errors in a plugin's own shape, and the engine as plugins see it."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import httpx
import pytest

from core.api import ChatRequest, Dialect, PluginError, Reply, RequestError, RouteResponse, RouteSpec, VectorRequest
from core.frontend.answering.parsing import AnswerParser
from core.server.app import create_app
from core.server.plugin_routes.claims import OWN, first_part
from core.server.plugin_routes.free_paths import check_free
from core.server.plugin_routes.table import RouteTable

NDJSON = "application/x-ndjson"
HELLO = {"messages": [{"role": "user", "content": "hi"}]}


class Words:
    """A job: the texts of an answer as a list, or each as a line."""

    def __init__(self, answer):
        self.answer = answer

    async def collect(self):
        found = []

        def take(deltas):
            found.extend(event.text for delta in deltas for event in delta.events)
            return True

        await self.answer.run(take)
        return json.dumps(found).encode()

    async def stream(self, outlet):
        def take(deltas):
            lines = [json.dumps(event.text) + "\n" for delta in deltas for event in delta.events]
            return outlet.put("".join(lines).encode())

        async def more():
            await outlet.room()
            return True

        await self.answer.run(take, more)


def _asked(body):
    if not isinstance(body.get("messages"), list):
        raise RequestError("messages must be a list", param="messages")
    return ChatRequest(messages=body["messages"])


class Drop:
    """A plugin with one route of each sort."""

    def __init__(self):
        self.client = None
        self.seen = []

    def declare(self, registry):
        registry.dialect(Dialect(lambda error: {"oh": error.message, "field": error.param, "status": error.status}))
        registry.add("POST", "/api/whole", self.whole)
        registry.add("POST", "/api/stream", self.stream)
        registry.add("POST", "/api/embed", self.embed)
        registry.add("HEAD", "/api/whole", self.nothing)
        registry.asset("/", b"<p>page</p>", "text/html; charset=utf-8", headers={"X-Frame-Options": "SAMEORIGIN"})
        registry.asset("/ui/app.js", b"go()", "text/javascript")

    def bind(self, client):
        self.client = client

    async def whole(self, request):
        return RouteResponse(await self._opened(await request.json(), Words.collect))

    async def stream(self, request):
        body = await request.json()
        answer = await self.client.open(_asked(body), prefix="drop")
        return Reply(Words(answer), stream=True, media_type=NDJSON)

    async def _opened(self, body, run):
        return await run(Words(await self.client.open(_asked(body), prefix="drop")))

    async def embed(self, request):
        asked = VectorRequest(prompts=[(await request.json())["input"]], task="embed")
        done = await self.client.pool(asked, prefix="drop")
        return RouteResponse(json.dumps([one.tolist() for one in done.results]).encode())

    async def nothing(self, request):
        return RouteResponse(b"")


SPEC = RouteSpec(name="drop", impl="x:Y", api=1, summary="s", mounts=("/api", "/", "/ui"), public=("/", "/ui"))


@pytest.fixture
def drop(options):
    """`drop(llm)` makes an application with the plugin's routes, and returns the plugin and how to ask."""

    def make(llm, *, parser=None, **server):
        table, plugin = RouteTable(), Drop()
        plugin.declare(table.registry("drop", "'drop' (acme 1)", SPEC))
        table.plugins.append(("'drop' (acme 1)", plugin))
        app = create_app(llm, options(**server), parser=parser and AnswerParser(parser), plugin_routes=table.routes)
        table.bind(app.state.core)
        return Asked(app, plugin, table)

    return make


class Asked:
    def __init__(self, app, plugin, table):
        self.app, self.plugin, self.table, self.state = app, plugin, table, app.state.core

    def __call__(self, method, path, **request):
        async def go():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
                return await client.request(method, path, **request)

        return asyncio.run(go())

    def collect(self, call, body):
        async def go():
            return [chunk async for chunk in call(body)]

        return asyncio.run(go())


# -- claims ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mount", "why"),
    [
        ("/v1", "/v1 is core's own"),
        ("/health", "/health is core's own"),
        ("/x/other", "/x is core's own"),
        ("/api/", "a mount is a plain path"),
        ("api", "a mount is a plain path"),
        ("/{any}", "a mount is a plain path"),
        ("/a/../v1", "a mount is a plain path"),
        ("", "a mount is a plain path"),
    ],
)
def test_a_claim_that_cannot_be_is_refused(mount, why):
    with pytest.raises(PluginError, match=r"CORE-P130 .*'drop' \(acme 1\) cannot have") as caught:
        RouteTable().registry("drop", "'drop' (acme 1)", SPEC.replace(mounts=(mount,)))
    assert why in str(caught.value)


@pytest.mark.parametrize("mount", ["/api", "/api/chat", "/"])
def test_two_plugins_cannot_claim_the_same_but_for_the_root_page(mount):
    table = RouteTable()
    table.registry("one", "'one'", SPEC.replace(mounts=("/api", "/")))
    if mount == "/":
        table.registry("two", "'two'", SPEC.replace(mounts=(mount,)))
        return
    with pytest.raises(PluginError, match=r"'one' claims /api; choose one of them with --route"):
        table.registry("two", "'two'", SPEC.replace(mounts=(mount,)))


def test_routes_lie_under_the_claims(llm, drop):
    table = RouteTable()
    registry = table.registry("drop", "'drop'", SPEC.replace(mounts=("/api", "/")))
    with pytest.raises(PluginError, match=r"GET /apis: its routes lie under /x/drop/ or /api/ or /"):
        registry.add("GET", "/apis", None)
    with pytest.raises(PluginError, match=r"its routes lie under"):
        registry.add("GET", "/{page}", None)
    registry.add("GET", "/api", None)
    registry.add("GET", "/api/{name}/more", None)
    registry.add("DELETE", "/", None)
    assert drop(llm).table.facts() == {"routes of drop": "/ /api /ui; without a key: / /ui/app.js"}


def test_a_plugin_that_goes_by_settings_has_its_own_prefix():
    table = RouteTable()
    table.registry("drop", "'drop'", SPEC.replace(settings=("stream_interval",))).add("GET", "/x/drop", None)
    assert [route.path for route in table.routes] == ["/x/drop"]


def test_every_path_of_core_is_known_before_the_engine_starts(llm, options):
    app = create_app(llm, options())
    assert {first_part(route.path) for route in app.routes} - OWN == set(), "add them to OWN of claims"


def test_the_application_looks_again(llm, options):
    class Sly:
        owner, method, methods, path, public, header = "'sly'", "GET", ("GET",), "/health", False, None
        scope = "generate"

    with pytest.raises(PluginError, match=r"CORE-P130 .*/health is core's own"):
        create_app(llm, options(), plugin_routes=[Sly()])


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses/{any}/cancel"])
def test_apis_share_a_version_but_no_path(llm, options, path):
    table = RouteTable()
    registry = table.registry("other", "'other'", SPEC.replace(mounts=("/v1/chat", "/v1/responses")))
    registry.add("POST", f"{path}/also", None)
    assert f"{path}/also" in [route.path for route in create_app(llm, options(), plugin_routes=table.routes).routes]
    third = table.registry("third", "'third'", SPEC.replace(mounts=("/v1/chats",)))
    for mount in ("/v1/chat", "/v1/chat/completions", "/v1/responses/a"):
        with pytest.raises(PluginError, match=r"CORE-P130 .*'other' claims .*--route"):
            table.registry("third", "'third'", SPEC.replace(mounts=(mount,)))
    third.add("POST", "/v1/chats", None)
    own = [*create_app(llm, options(), plugin_routes=()).routes, SimpleNamespace(path="/v1/chats", methods={"POST"})]
    with pytest.raises(PluginError, match=r"CORE-P130 .*core has this route"):
        check_free(table.routes, own)


def test_a_path_is_anothers_for_clients_that_send_a_header(llm, options):
    async def theirs(request):
        return RouteResponse(b"theirs" + request.path_params.get("model", "").encode())

    async def ours(request):
        return RouteResponse(b"ours")

    table = RouteTable()
    table.registry("drop", "'drop'", SPEC.replace(mounts=("/v1/models",))).add("GET", "/v1/models/{model:path}", ours)
    registry = table.registry("other", "'other'", SPEC.replace(mounts=("/api",)))
    for path in ("/v1/models/{model:path}", "/version", "/nobody"):
        registry.add("GET", path, theirs, header="X-Other")
    app = create_app(llm, options(), plugin_routes=table.routes)

    async def go():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client:
            paths = [f"/v1/models/{llm.model_name}", "/version", "/nobody"]
            plain = [(await client.get(path)).status_code for path in paths]
            return plain, [(await client.get(path, headers={"x-other": "1"})).text for path in paths]

    assert asyncio.run(go()) == ([200, 200, 404], [f"theirs{llm.model_name}", "theirs", "theirs"])
    registry.add("GET", "/health", theirs, header="X-Other")
    with pytest.raises(PluginError, match=r"CORE-P130 .*nobody needs a key for this path"):
        create_app(llm, options(), plugin_routes=table.routes)


def test_an_asset_makes_room_only_where_it_says_so():
    table = RouteTable()
    first = table.registry("one", "'one'", SPEC.replace(mounts=("/",)))
    second = table.registry("two", "'two'", SPEC.replace(mounts=("/",)))
    first.asset("/", b"running", "text/plain", optional=True)
    second.asset("/", b"page", "text/html")
    first.asset("/", b"late", "text/plain", optional=True)
    assert [(route.owner, route.path) for route in table.routes] == [("'two'", "/")]
    with pytest.raises(PluginError, match="route plugin 'two' has declared it"):
        first.add("HEAD", "/", None)


@pytest.mark.parametrize(
    ("path", "content", "why"),
    [
        ("/api/x", b"", "not name the path among `public`"),
        ("/ui/{x}", b"", "a plain path"),
        ("/ui/x", "text", "bytes"),
    ],
)
def test_an_asset_that_cannot_be_is_refused(path, content, why):
    registry = RouteTable().registry("drop", "'drop'", SPEC)
    with pytest.raises(PluginError, match=why):
        registry.asset(path, content, "text/plain")


# -- assets and errors -------------------------------------------------------------------------------------------------


def test_assets_need_no_key_and_everything_else_does(llm, drop):
    ask = drop(llm, api_key="k")
    page = ask("GET", "/")
    assert (page.status_code, page.text) == (200, "<p>page</p>")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["x-content-type-options"] == "nosniff" and page.headers["x-frame-options"] == "SAMEORIGIN"
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert ask("HEAD", "/ui/app.js").status_code == 200
    assert [ask(method, "/").status_code for method in ("POST", "PUT", "DELETE", "OPTIONS")] == [401] * 4
    assert ask("GET", "/ui/other.js").status_code == ask("HEAD", "/api/whole").status_code == 401
    assert ask("HEAD", "/api/whole", headers={"x-api-key": "k"}).status_code == 200


def test_an_asset_is_sent_once(llm, drop):
    ask = drop(llm)
    tag = ask("GET", "/ui/app.js").headers["etag"]
    again = ask("GET", "/ui/app.js", headers={"if-none-match": f'"other", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert ask("GET", "/ui/app.js", headers={"if-none-match": '"other"'}).content == b"go()"


def test_errors_under_a_claim_are_the_plugins(llm, drop):
    ask = drop(llm, api_key="k")
    key = {"x-api-key": "k"}
    refused = ask("POST", "/api/whole", json={})
    assert refused.status_code == 401 and refused.json()["oh"].startswith("A key is needed")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert ask("GET", "/api/nothing", headers=key).json()["status"] == 404
    assert ask("GET", "/api/whole", headers=key).json()["status"] == 405
    wrong = ask("POST", "/api/whole", json={"messages": 5}, headers=key).json()
    assert wrong == {"oh": "messages must be a list", "field": "messages", "status": 400}
    browser = {**key, "origin": "http://elsewhere", "content-type": "text/plain"}
    assert ask("POST", "/api/whole", content=b"{}", headers=browser).json()["status"] == 415
    assert "oh" not in ask("GET", "/v1/nothing", headers=key).json()


def test_who_is_no_browser_need_not_say_json(llm, drop):
    ask = drop(llm)
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert ask("POST", "/api/whole", content=json.dumps(HELLO), headers=form).status_code == 200
    for name in ("origin", "sec-fetch-site"):
        assert ask("POST", "/api/whole", content=json.dumps(HELLO), headers={**form, name: "x"}).status_code == 415


# -- the engine as plugins see it --------------------------------------------------------------------------------------


def test_everything_is_refused_as_a_request_error(fake, drop, engine_error):
    ask = drop(fake())
    client, state = ask.plugin.client, ask.state

    def refusal(call, body):
        with pytest.raises(RequestError) as caught:
            ask.collect(call, body)
        return caught.value.status, caught.value.param, caught.value.code

    assert refusal(client.generate, "x" * 600)[::2] == (400, "context_length_exceeded")
    answer = ask("POST", "/api/embed", json={"input": "x"})
    assert answer.status_code == 400 and "embed" in answer.json()["oh"]
    state.lifecycle.draining = True
    assert refusal(client.generate, "x")[::2] == (503, "draining")
    failing = drop(fake(failure=engine_error, fail_at=1))
    with pytest.raises(RequestError) as caught:
        failing.collect(failing.plugin.client.generate, "x")
    assert caught.value.status == 503


def test_an_error_before_the_first_piece_is_a_status(llm, drop):
    ask = drop(llm)
    assert ask("POST", "/api/stream", json={"messages": []}).status_code == 400
    answer = ask("POST", "/api/stream", json=HELLO)
    assert answer.headers["content-type"] == NDJSON and len(answer.text.splitlines()) > 2


def test_generations_of_plugins_count(fake, drop):
    llm = fake(reply="abc")
    ask = drop(llm)

    async def go():
        chunks = ask.plugin.client.generate("hi")
        await anext(chunks)
        during = len(ask.state.lifecycle.work), llm.running
        await chunks.aclose()
        return during, (len(ask.state.lifecycle.work), llm.running, len(llm.aborted))

    assert asyncio.run(go()) == ((1, 1), (0, 0, 1))
    ask("POST", "/api/whole", json=HELLO)
    page = ask.state.metrics.render().decode()
    assert 'core_request_success_total{finished_reason="stop",model_name="acme/tiny"} 1.0' in page
    assert 'core_generation_tokens_total{model_name="acme/tiny"} 4' in page
    assert 'core_http_requests_total{model_name="acme/tiny",route="/api/whole",status="200"} 1.0' in page


@pytest.mark.parametrize("path", ["/api/whole", "/api/stream"])
def test_a_client_that_goes_ends_its_generation(fake, drop, path):
    llm = fake(hold_at=0)
    ask = drop(llm)
    messages = [{"type": "http.request", "body": json.dumps(HELLO).encode(), "more_body": False}]

    async def receive():
        if messages:
            return messages.pop()
        while not llm.running:
            await asyncio.sleep(0.005)
        return {"type": "http.disconnect"}

    async def send(message):
        raise AssertionError(message)

    head = [(b"content-type", b"application/json"), (b"host", b"t")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": head}
    asyncio.run(asyncio.wait_for(ask.app(scope, receive, send), 10))
    assert llm.running == 0 and len(llm.aborted) == 1 and not ask.state.lifecycle.work


def test_abilities_and_facts(fake, drop, parser):
    client = drop(fake(), tool_parser="hermes").plugin.client
    assert client.abilities == {"complete", "chat", "tools", "switched_thinking"}
    assert client.facts == {} and client.created > 1.7e9


@pytest.mark.parametrize(("templates", "chats"), [({"default"}, True), ((), False)])
def test_a_model_chats_whose_template_is_not_its_tokenizers(fake, drop, templates, chats):
    """`--chat-template` gives it one, or its plugin knows one."""
    llm = fake()
    llm.tokenizer.chat_template, llm.template_names = None, frozenset(templates)
    assert ("chat" in drop(llm).plugin.client.abilities) is chats


def test_claims_are_told_by_the_plugin_commands(monkeypatch):
    from core.cli.plugins.listing import _told

    row = {"state": "ok", "mounts": ["/api", "/"]}
    assert _told(row) == "ok; takes /api, /" and _told({"state": "ok"}) == "ok"
    assert _told({"state": "ok", "mounts": [f"/{n}" for n in range(10)]}) == "ok; takes /0, /1, /2, /3, /4, and 5 more"
