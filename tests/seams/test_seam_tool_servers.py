"""A strangers' tool-server client: it takes part where a server is allowed, and core alone drives it."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from core_plugin_openai.manifest import RESPONSES
from core_plugin_openai.responses.routes import ResponsesRoutes
from core_plugin_tool_servers.servers import GROUP

from core import AsyncLLM
from core.api import PluginError
from core.config.resolved import Options
from core.frontend.answering.parsing import answer_parser
from core.plugins.active import enter
from core.selection.resolver import resolve
from core.server.plugin_routes.table import RouteTable
from core_testing.served import served_app

TOOLS = {"mcp_server": ["mine=http://127.0.0.1:9/x"], "mcp_headers": {"mine": {"X-Key": "k"}}}


def options(llama, tools, **select):
    return Options.model_validate({"model": {"model": llama}, "tools": tools, "select": select})


@pytest.mark.parametrize(
    ("tools", "select", "found"),
    [
        ({}, {}, []),
        ({}, {"tool_client": "shelf"}, ["shelf"]),
        (TOOLS, {"tool_client": "shelf"}, ["shelf"]),
        ({"allow_mcp_url": ["https://e.com"]}, {"tool_client": "shelf"}, ["shelf"]),
        (TOOLS, {"tool_client": "none"}, []),
    ],
)
def test_it_takes_part_where_a_server_is_allowed(plugins, llama, tools, select, found):
    plugins("tool_server")
    plan = resolve(options(llama, tools, **select)).config.plan
    assert [one.name for one in plan.of(GROUP)] == found


def test_one_that_cannot_be_made_ends_the_start(plugins, llama):
    plugins("tool_server")
    given = options(llama, TOOLS, tool_client="shelf")
    runtime = given.runtime.model_copy(update={"plugin_options": {"shelf": {"broken": True}}})
    given = given.model_copy(update={"runtime": runtime})
    with pytest.raises(PluginError, match=r"'shelf' \(seam-tools 1.0\): its constructor raised .*broken"):
        RouteTable.declare(enter(resolve(given).config.plan), given)


def test_a_call_that_is_demanded_of_a_real_model(plugins, llama):
    """The engine is held to a call by its grammar, core makes it, and the model speaks again."""
    plugins("tool_server")
    given = options(llama, TOOLS, tool_client="shelf", tool_parser="hermes")
    body = {
        "input": "Hi",
        "max_output_tokens": 130,
        "temperature": 1.0,
        "seed": 5,
        "tools": [{"type": "mcp", "server_label": "mine", "require_approval": "never"}],
        "tool_choice": {"type": "mcp", "server_label": "mine", "name": "fetch"},
        "max_tool_calls": 1,
    }

    async def go():
        plan = enter(resolve(given).config.plan)
        parsers = [(spec, impl) for _, spec, impl in plan.impls("core.tool_parsers")]
        fields = {"tool_parser": "hermes", "chat_template": None}
        llm = await AsyncLLM.start(llama, in_process=True, dtype="float32", num_blocks=200, **fields)
        try:
            plugins = {RESPONSES: ResponsesRoutes({})}
            parser = answer_parser(parsers, "hermes")
            app = served_app(llm, given, plugins, parser=parser, driven=plan.driven)
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
                return await client.post("/v1/responses", json=body)
        finally:
            await llm.close()

    answer = asyncio.run(go())
    assert answer.status_code == 200, answer.text
    listed, called, *_ = answer.json()["output"]
    assert listed["tools"][0]["name"] == "fetch"
    assert called["type"] == "mcp_call" and called["output"].startswith("one ")
    assert called["output"] == f"one {json.loads(called['arguments'])['what']}"
    from seam_tools.shelf import TOLD

    assert TOLD == [("options", {}), ("open", "http://127.0.0.1:9/x", {"X-Key": "k"}), ("close",)]
