"""What plugins hand out is held against its protocol where it is handed over, once for a type."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from core_plugin_structured.compiling.child import Task, answer
from core_plugin_structured.compiling.trial import GRAMMAR_MATCHER, begin
from core_plugin_tool_servers.servers import RemoteServers
from core_plugin_tool_servers.sessions import RemoteSessions

from core.api import ToolParserSpec
from core.api.errors import PluginError, RequestError
from core.api.parsers import ParserContext, Text
from core.api.tool_servers import ToolEndpoint, ToolServerError
from core.frontend.answering.parsing import answer_parser
from core.plugins import handed
from core.plugins.contracts import Contract
from core.plugins.fitting import methods_of, misfits_of
from core.plugins.handed import OUTPUT_PARSER, Handed

OWNER = "tool parser 'odd' (acme 1.0)"


class Parser:
    def feed(self, text, token_ids=()):
        return [Text(text)]

    def finish(self):
        return []


class Matcher:
    def fill(self, mask):
        mask[:] = 1

    def accept(self, token):
        return True

    def rollback(self, count): ...

    def is_complete(self):
        return True


def lacking(kind, name):
    return type("Odd", (kind,), {name: None})()


@pytest.mark.parametrize("name", sorted(name for name, one in vars(handed).items() if isinstance(one, Contract)))
def test_every_contract_names_a_protocol_with_methods(name):
    wrong = misfits_of(getattr(handed, name), object())
    assert wrong and all(one.startswith("it lacks ") for one in wrong)


@pytest.mark.parametrize(
    ("value", "contract", "told"),
    [
        (
            lacking(Parser, "finish"),
            OUTPUT_PARSER,
            "a Odd, which does not fit OutputParser: it lacks finish()",
        ),
        (
            SimpleNamespace(feed=lambda text: [], finish=list),
            OUTPUT_PARSER,
            "feed(text, token_ids=()) is called",
        ),
        (None, GRAMMAR_MATCHER, "a NoneType, which does not fit GrammarMatcher: it lacks fill(mask)"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(value, contract, told):
    with pytest.raises(PluginError) as caught:
        Handed(OWNER).fit("its factory", value, contract)
    assert caught.value.code == "CORE-P160"
    assert caught.value.message.startswith(f"{OWNER}: its factory ") and told in caught.value.message


def test_a_type_is_looked_at_once():
    looks = []

    class Counted(Parser):
        def __getattribute__(self, name):
            looks.append(name)
            return super().__getattribute__(name)

    given = Handed(OWNER)
    given.fit("its factory", Counted(), OUTPUT_PARSER)
    first = len(looks)
    given.fit("its factory", Counted(), OUTPUT_PARSER)
    assert first and len(looks) == first


def boom(*given):
    raise KeyError("boom")


def test_what_raises_instead_is_named_but_a_clients_mistake_is_not():
    with pytest.raises(PluginError, match=r"CORE-P108 .*'odd' \(acme 1.0\): its factory raised KeyError: 'boom'"):
        Handed(OWNER).ask("its factory", OUTPUT_PARSER, boom)

    def refuse():
        raise RequestError("no such tool")

    with pytest.raises(RequestError):
        Handed(OWNER).ask("its factory", OUTPUT_PARSER, refuse)


@pytest.mark.parametrize("tool_parser", ["odd", None])
@pytest.mark.parametrize("make", [lambda ctx: lacking(Parser, "feed"), boom])
def test_a_parser_that_cannot_read_is_refused_when_it_is_made(tool_parser, make):
    spec = ToolParserSpec(name="odd", impl="m:Odd", api=1, summary="")
    parser = answer_parser([(spec, make)], tool_parser, OWNER)
    with pytest.raises(PluginError, match=r"CORE-P1(60|08) tool parser 'odd' \(acme 1.0\): making the parser"):
        parser.make(ParserContext())
    assert answer_parser([(spec, lambda ctx: Parser())], tool_parser, OWNER).make(ParserContext()).feed("a")


@pytest.mark.parametrize(
    ("compiled", "told"),
    [
        (SimpleNamespace(matcher=lambda: lacking(Matcher, "accept")), "matcher.. handed out a Odd, .* it lacks accept"),
        (object(), "compile.. or load.. handed out a object, .* it lacks matcher"),
        (SimpleNamespace(matcher=lambda: None), "matcher.. handed out a NoneType"),
    ],
)
def test_a_grammar_without_its_methods_is_refused_before_a_request_runs_with_it(compiled, told):
    given = Handed("structured-output backend 'odd' (acme 1.0)")
    with pytest.raises(PluginError, match=f"CORE-P160 structured-output backend 'odd' .*{told}"):
        begin(compiled, 64, given)
    begin(SimpleNamespace(matcher=Matcher), 64, given)

    def compile(kind, value):
        begin(compiled, 64, given)
        return compiled

    said = answer(compile, Task("regex", "a"), travels=False)
    assert said.state == "refused" and "CORE-P160 structured-output backend 'odd'" in said.text


def test_a_tool_session_without_its_methods_is_refused(caplog):
    class Client:
        async def open(self, url, headers):
            return SimpleNamespace(list_tools=list, close=lambda: None)

    async def scenario():
        owner = "tool-server client 'odd' (acme 1.0)"
        servers = RemoteServers(Client(), {}, fit=Handed(owner).fit)
        sessions = RemoteSessions(servers, {"a": ToolEndpoint("https://e.com")})
        with pytest.raises(ToolServerError):
            await sessions.tools("a")
        await sessions.close()

    asyncio.run(scenario())
    assert "CORE-P160 tool-server client 'odd' (acme 1.0): open() handed out a SimpleNamespace" in caplog.text
    assert "call_tool" in caplog.text


def test_the_tests_parser_and_matcher_have_what_the_protocols_name():
    from core.api.structured import GrammarMatcher

    assert {name for name in vars(Matcher) if not name.startswith("_")} == set(methods_of(GrammarMatcher))
