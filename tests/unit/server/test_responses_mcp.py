"""Tools of type `mcp`: fields, filters, names, choices, and what earlier calls say to the model."""

from __future__ import annotations

import pytest
from core_plugin_openai.responses.conversation import to_messages
from core_plugin_openai.responses.items import parse_input
from core_plugin_openai.responses.mcp.items import approved, check_approvals
from core_plugin_openai.responses.mcp.offers import held_lists, listed_tools, make_offers, names_of
from core_plugin_openai.responses.mcp.request import read_server
from core_plugin_openai.responses.tools import choose_tools
from core_plugin_tool_servers.servers import RemoteServers
from core_plugin_tool_servers.urls import read_pattern

from core.api import RemoteTool, RequestError
from core.api.tool_servers import ToolEndpoint

SERVERS = RemoteServers(None, {"docs": ToolEndpoint("https://docs/mcp")}, (read_pattern("https://e.com"),))
DOCS = {"type": "mcp", "server_label": "docs"}
ADD = {"type": "function", "name": "docs__add", "parameters": {"type": "object"}}
CALL = {"id": "mcp_1", "type": "mcp_call", "server_label": "docs", "name": "add", "arguments": '{"a":1}', "output": "2"}
REQUEST = {"id": "mcpr_1", "type": "mcp_approval_request", "server_label": "docs", "name": "add", "arguments": "{}"}
USER = {"role": "user", "content": "Hi"}


def tool(name, read_only=None, **schema):
    hints = None if read_only is None else {"readOnlyHint": read_only}
    return {"name": name, "description": "d", "input_schema": schema, "annotations": hints}


def read(**fields):
    return read_server({**DOCS, **fields}, "tools[0]", SERVERS)


@pytest.mark.covers("TOOL-04")
@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (None, {"a", "b", "c"}),
        ("always", {"a", "b", "c"}),
        ("never", set()),
        ({"never": {"tool_names": ["a"]}}, {"b", "c"}),
        ({"always": {"tool_names": ["a"]}}, {"a"}),
        ({"always": {"tool_names": ["a"]}, "never": {"tool_names": ["b"]}}, {"a", "c"}),
        ({"never": {"read_only": True}}, {"b", "c"}),
        ({"always": {"read_only": False}}, {"b", "c"}),
    ],
)
def test_which_calls_a_human_is_asked_about(given, asked):
    tools = [tool("a", True), tool("b", False), tool("c")]
    approval = read(require_approval=given).approval
    assert {one["name"] for one in tools if approval.needed(one)} == asked


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        (None, {"a", "b"}),
        ([], set()),
        (["b", "z"], {"b"}),
        ({"read_only": True}, {"a"}),
        ({"read_only": True, "tool_names": ["b"]}, set()),
    ],
)
def test_which_tools_are_listed(given, allowed):
    tools = [RemoteTool("a", annotations={"readOnlyHint": True}), RemoteTool("b")]
    assert {one["name"] for one in listed_tools(read(allowed_tools=given), tools)} == allowed


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"server_label": ""}, "server_label"),
        ({"server_label": "a b"}, "server_label"),
        ({"server_label": None}, "server_label"),
        ({"server_label": "unknown"}, "server_label"),
        ({"server_url": 5}, "server_url"),
        ({"server_url": "https://e.com"}, "server_url"),
        ({"server_label": "e", "server_url": "https://f.com"}, "server_url"),
        ({"headers": {"a": "x\ny"}}, "headers"),
        ({"headers": "x"}, "headers"),
        ({"authorization": "x\ny"}, "authorization"),
        ({"authorization": "x", "headers": {"authorization": "y"}}, "authorization"),
        ({"allowed_tools": "all"}, "allowed_tools"),
        ({"allowed_tools": [5]}, "allowed_tools"),
        ({"allowed_tools": {"read_only": "yes"}}, "allowed_tools.read_only"),
        ({"require_approval": "sometimes"}, "require_approval"),
        ({"require_approval": {"never": {"tool_names": "a"}}}, "require_approval.never"),
        ({"server_description": 5}, "server_description"),
        ({"connector_id": "connector_gmail"}, "connector_id"),
    ],
)
def test_faults_are_named(fields, param):
    with pytest.raises(RequestError) as refused:
        read(**fields)
    assert (refused.value.status, refused.value.param) == (400, f"tools[0].{param}")


def test_secrets_are_not_repeated():
    server = read(server_label="e", server_url="https://e.com/x?key=secret", authorization="secret")
    assert server.endpoint.headers == {"Authorization": "Bearer secret"}
    assert "secret" not in repr(server.listed)
    assert server.listed["server_url"] == "https://e.com/x"
    assert read().listed["server_url"] is None


def test_two_servers_of_one_label():
    with pytest.raises(RequestError, match="two MCP servers"):
        choose_tools([DOCS, DOCS], None, SERVERS)


def test_names_are_functions_and_nobodys_else():
    servers = [read(), read(server_label="e", server_url="https://e.com")]
    lists = {"docs": [tool("add"), tool("a.b"), tool("a b"), tool("<|im_end|>"), tool("n" * 200)], "e": [tool("add")]}
    offers = make_offers(servers, lists, ["docs__add"])
    names = [offer.function for offer in offers]
    assert names[:4] == ["docs__add_2", "docs__a_b", "docs__a_b_2", "docs____im_end__"]
    assert len(names[4]) == 64 and names[5] == "e__add" and len(set(names)) == 6
    assert names_of(offers)["docs", "a b"] == "docs__a_b_2"


@pytest.mark.parametrize("schema", [{"type": "string"}, {"properties": []}, {"type": ["string"]}])
def test_arguments_are_always_an_object(schema):
    (offer,) = make_offers([read()], {"docs": [tool("t", **schema)]}, [])
    assert offer.chat_form()["function"]["parameters"] == {"type": "object"}
    (plain,) = make_offers([read()], {"docs": [tool("t", properties={"a": {}})]}, [])
    assert plain.chat_form()["function"]["parameters"] == {"type": "object", "properties": {"a": {}}}


def test_lists_are_asked_for_once():
    item = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "docs", "tools": [tool("add")]}
    held = parse_input([USER, item])
    assert held_lists([read()], held) == {"docs": [tool("add")]}
    assert held_lists([read(allowed_tools=["add"])], held) == {"docs": [tool("add")]}
    assert held_lists([read(allowed_tools=["add", "new"])], held) == {}
    assert held_lists([read()], parse_input([USER, {**item, "error": "gone"}])) == {}


@pytest.mark.covers("TOOL-04")
@pytest.mark.parametrize(
    ("choice", "offered", "mode", "name"),
    [
        ("auto", ["docs__add", "docs__add_2", "docs__sub"], "auto", None),
        ("required", ["docs__add", "docs__add_2", "docs__sub"], "required", None),
        ({"type": "function", "name": "docs__add"}, ["docs__add", "docs__add_2", "docs__sub"], "function", "docs__add"),
        ({"type": "mcp", "server_label": "docs"}, ["docs__add_2", "docs__sub"], "required", None),
        (
            {"type": "mcp", "server_label": "docs", "name": "add"},
            ["docs__add", "docs__add_2", "docs__sub"],
            "function",
            "docs__add_2",
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "mcp", "server_label": "docs", "name": "sub"}],
            },
            ["docs__sub"],
            "auto",
            None,
        ),
    ],
)
def test_choices_among_both(choice, offered, mode, name):
    tools = choose_tools([ADD, DOCS], choice, SERVERS).with_lists({"docs": [tool("add"), tool("sub")]})
    assert [one["function"]["name"] for one in tools.offered] == offered
    assert (tools.choice.mode, tools.choice.name) == (mode, name)


def test_choices_of_what_is_not_there():
    with pytest.raises(RequestError) as early:
        choose_tools([DOCS], {"type": "function", "name": "docs__add"}, SERVERS)
    assert early.value.param == "tool_choice.name"
    with pytest.raises(RequestError) as late:
        choose_tools([DOCS], {"type": "mcp", "server_label": "docs", "name": "x"}, SERVERS).with_lists({"docs": []})
    assert late.value.param == "tool_choice"


def test_calls_of_one_turn_are_one_message():
    function = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "3"}
    failed = {**CALL, "id": "mcp_2", "output": None, "error": {"type": "http_error", "code": 500, "message": "gone"}}
    unique = {**CALL, "id": "mcp_" + "0" * 32 + "_call_9", "arguments": "no object", "output": None}
    found = to_messages(None, parse_input([USER, CALL, failed, function, result, unique, USER]))
    assert [message["role"] for message in found] == ["user", "assistant", *["tool"] * 3, "assistant", "tool", "user"]
    assert [call["id"] for call in found[1]["tool_calls"]] == ["mcp_1", "mcp_2", "c"]
    assert [(one["tool_call_id"], one["content"]) for one in found[2:5]] == [
        ("mcp_1", "2"),
        ("mcp_2", "Error: gone"),
        ("c", "3"),
    ]
    assert found[2]["name"] == found[1]["tool_calls"][0]["function"]["name"] == "docs__add"
    (call,) = found[5]["tool_calls"]
    assert (call["id"], call["function"]["arguments"]) == ("call_9", "no object")
    assert found[6]["content"] == "The call was not carried out."


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("gone", "Error: gone"),
        ({"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no"}, 5]}, "Error: no"),
        ({"type": "mcp_tool_execution_error", "content": 5}, "Error: "),
    ],
)
def test_errors_of_every_form(error, said):
    assert to_messages(None, parse_input([{**CALL, "output": None, "error": error}]))[1]["content"] == said


def test_approvals():
    yes = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    no = {**yes, "approve": False}
    assert [one["id"] for one in approved(parse_input([USER, REQUEST, yes]))] == ["mcpr_1"]
    assert approved(parse_input([USER, REQUEST])) == []
    assert approved(parse_input([USER, REQUEST, no])) == []
    assert approved(parse_input([USER, REQUEST, yes, {**CALL, "approval_request_id": "mcpr_1"}])) == []
    assert approved(parse_input([USER, REQUEST, no, yes])) == []
    assert len(approved(parse_input([USER, REQUEST, yes, yes]))) == 1
    other = {**REQUEST, "arguments": '{"all": true}'}
    assert [one["arguments"] for one in approved(parse_input([USER, REQUEST, other, yes]))] == ["{}"]
    assert len(to_messages(None, parse_input([USER, REQUEST, yes]))) == 1
    refused = to_messages(None, parse_input([USER, REQUEST, no]))
    assert refused[2]["content"] == "The user refused this call."
    check_approvals(parse_input([USER, REQUEST, yes]), ["docs"])
    for items, labels in (([USER, yes], ["docs"]), ([USER, REQUEST, yes], ["other"])):
        with pytest.raises(RequestError):
            check_approvals(parse_input(items), labels)


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "mcp_list_tools", "id": "x", "server_label": "d", "tools": "none"}, "tools"),
        ({"type": "mcp_list_tools", "id": "x", "server_label": "d", "tools": [{"name": "a"}]}, "tools[0]"),
        (
            {"type": "mcp_list_tools", "id": "x", "server_label": "d", "tools": [{**tool("a"), "annotations": 5}]},
            "tools[0].annotations",
        ),
        ({"type": "mcp_list_tools", "server_label": "d", "tools": []}, "id"),
        ({**CALL, "error": 5}, "error"),
        ({**CALL, "name": ""}, "name"),
        ({**CALL, "output": {}}, "output"),
        ({**REQUEST, "arguments": {}}, "arguments"),
        ({"type": "mcp_approval_response", "approval_request_id": "x", "approve": "yes"}, "approve"),
        ({"type": "mcp_approval_response", "approve": True}, "approval_request_id"),
    ],
)
def test_faults_of_items_are_named(item, param):
    with pytest.raises(RequestError) as refused:
        parse_input([USER, item])
    assert refused.value.param == f"input[1].{param}"
