"""A server below a path of a reverse proxy that takes the path off, or does not."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from pydantic import ValidationError
from starlette.responses import RedirectResponse

from core.options.server import ServerOptions
from core.server.prefix import Prefix

KEY, ADMIN = "sk-secret", "sk-admin"
BODY = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def api(build, llm):
    return build(llm, api_key=KEY, admin_api_key=ADMIN, root_path="/llm/")


def bearer(key):
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize("prefix", ["", "/llm"])
def test_routes_answer_with_and_without_it(api, prefix):
    assert api.get(f"{prefix}/health").status_code == 200
    assert api.get(f"{prefix}/v1/models", headers=bearer(KEY)).json()["data"]
    answer = api.post(f"{prefix}/v1/chat/completions", BODY, headers=bearer(KEY))
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    assert api.get(f"{prefix}/nothing", headers=bearer(KEY)).status_code == 404


@pytest.mark.parametrize("path", ["/llm/server_info", "/server_info", "/%6clm/server_info", "/llm/%73erver_info"])
def test_the_admin_scope_is_the_same_on_both_paths(api, path):
    assert api.get(path).status_code == 401
    assert api.get(path, headers=bearer(KEY)).status_code == 403
    assert api.get(path, headers=bearer(ADMIN)).status_code == 200


@pytest.mark.parametrize("path", ["/llm/llm/server_info", "/llmserver_info", "/llm//server_info"])
def test_no_other_path_reaches_a_route(api, path):
    assert api.get(path).status_code == 401
    assert api.get(path, headers=bearer(KEY)).status_code == 404


def test_errors_are_said_in_the_route_s_own_words(api):
    answer = api.post("/llm/v1/messages", {}, headers=bearer(KEY))
    assert answer.status_code == 400 and answer.json()["type"] == "error"


def test_the_schema_says_where_the_server_is(api, build, llm):
    for path in ("/llm/openapi.json", "/openapi.json"):
        assert api.get(path, headers=bearer(KEY)).json()["servers"] == [{"url": "/llm"}]
    assert "servers" not in build(llm).get("/openapi.json").json()


@pytest.mark.parametrize("prefix", ["", "/llm"])
def test_a_redirect_leads_below_it(api, prefix):
    answer = api.get(f"{prefix}/version/?a=b", headers=bearer(KEY))
    assert answer.status_code == 307
    assert answer.headers["location"] == "http://test/llm/version?a=b"


def test_the_bare_prefix_leads_to_the_page_below_it(api):
    answer = api.get("/llm")
    assert answer.status_code == 307 and answer.headers["location"] == "/llm/"


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("/ui/", "/llm/ui/"),
        ("/llm/ui/", "/llm/ui/"),
        ("ui/", "ui/"),
        ("http://here/ui/", "http://here/llm/ui/"),
        ("https://elsewhere/ui/", "https://elsewhere/ui/"),
        ("//elsewhere/ui/", "//elsewhere/ui/"),
    ],
)
def test_a_route_s_own_redirects(location, shown):
    layer = Prefix(RedirectResponse(location), "/llm")

    async def ask():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(layer), base_url="http://here") as client:
            return await client.get("/llm/x")

    assert asyncio.run(ask()).headers["location"] == shown


@pytest.mark.parametrize("path", ["/a b", "/a?b", "/a//b", "/{x}", "http://x/"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ValidationError):
        ServerOptions(root_path=path)
