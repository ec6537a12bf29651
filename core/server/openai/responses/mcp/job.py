"""A response that calls tools itself: the model speaks, its calls are made, and it speaks again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from core.api.serving import AUTO, ToolChoice
from core.api.tool_servers import TOOL_BAD_ARGUMENTS as BAD_ARGUMENTS
from core.api.tool_servers import ToolServerError
from core.server.entry import OpenChat
from core.server.errors import ApiError
from core.server.openai.responses.ask import Asked
from core.server.openai.responses.items import Item
from core.server.openai.responses.job import ResponseWork
from core.server.openai.responses.mcp.items import approved, call_id_of
from core.server.openai.responses.mcp.offers import held_lists, listed_tools
from core.server.openai.responses.mcp.output import ApprovalItem, ListItem, McpCallItem
from core.server.openai.responses.mcp.request import McpServer
from core.server.openai.responses.mcp.turns import Turns
from core.server.openai.responses.output import COMPLETED, INCOMPLETE, Event, OpenCall
from core.server.openai.responses.params import turn_limit
from core.server.openai.responses.tools import Tools
from core.server.remote.sessions import RemoteSessions

_AHEAD = 16
"""Events that may wait for a slow reader before the work does."""


@dataclass(slots=True)
class RemoteJob(ResponseWork):
    """A response with tools of MCP servers.

    The work runs in a task of its own and hands over events, so that several tools may be at work at once.

    Attributes:
        rounds: How often the model may call.
    """

    generation: Turns
    asked: Asked = field(kw_only=True)
    sessions: RemoteSessions = field(kw_only=True)
    rounds: int = field(kw_only=True)
    _tools: Tools = field(default_factory=Tools, init=False)
    _ended: str | None = field(default="stop", init=False)
    _items: dict[int, Item] = field(default_factory=dict, init=False)
    _calls: list[McpCallItem] = field(default_factory=list, init=False)
    _lists: list[ListItem] = field(default_factory=list, init=False)
    _made: int = field(default=0, init=False)
    _asks: bool = field(default=False, init=False)
    _outbox: list[Event] = field(default_factory=list, init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _room: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def batches(self) -> AsyncGenerator[list[Event], None]:
        """Yield the events, numbered and folded into the answer, as they come; the first ones come at once."""
        yield self._numbered(self._started())
        self.composer.make_call = self._open_call
        task = asyncio.create_task(self._work())
        task.add_done_callback(lambda _: self._news.set())
        try:
            while self._outbox or not task.done():
                if self._outbox:
                    yield self._numbered(self._fold(self._taken()))
                else:
                    await self._news.wait()
                    self._news.clear()
            task.result()
        finally:
            task.cancel()
            await asyncio.wait((task,))
        yield self._numbered(self._closing(self._ended))

    def _cut(self) -> list[Event]:
        events = [*self._taken(), *ResponseWork._cut(self)]
        for item in self._lists:
            events += item.failed("The answer ended before the server answered.")
        return [*events, *self._uncalled()]

    # -- the work --------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            await self._list_tools()
            await self._make_approved()
            while await self._turn():
                continue
        finally:
            await self.sessions.close()

    async def _list_tools(self) -> None:
        """Ask the servers whose tools the conversation does not hold."""
        servers, lists = self.asked.tools.servers, _held(self.asked)

        async def ask(server: McpServer, item: ListItem) -> None:
            try:
                lists[server.label] = listed_tools(server, await self.sessions.tools(server.label))
                events = item.listed(lists[server.label])
            except ToolServerError as error:
                events = item.failed(error.message)
            self._lists.remove(item)
            await self._send(events)

        asked = [
            (server, ListItem(self.composer.claim(), server.label)) for server in servers if server.label not in lists
        ]
        self._lists = [item for _, item in asked]
        await self._send([event for item in self._lists for event in item.opened()])
        await _together([ask(server, item) for server, item in asked])
        self._tools = self.asked.tools.with_lists(lists)

    async def _make_approved(self) -> None:
        for request in approved([*self.asked.earlier, *self.asked.items]):
            label, name = request["server_label"], request["name"]
            call = McpCallItem(self.composer.claim(), label, name, call_id_of(request), request["id"])
            self._calls.append(call)
            self._made += 1
            await self._send([*call.opened(), *call.grown(request["arguments"]), *call.ended(COMPLETED)])
        await self._make_calls()

    async def _turn(self) -> bool:
        """Let the model speak, and make its calls; return whether it is to speak again."""
        left = self.generation.left
        if left is not None and left <= 0:
            self._ended = "length"
            return False
        self._asks = False
        chat = await self.generation.open(self.asked.turn(list(self._in_order()), self._tools, self._choice(), left))
        self.composer.begin_turn(self._calls_left(), chat.answer.call_id if chat.answer.parser else None)
        self._ended = await self._speak(chat)
        if self._ended != "stop":  # what has been called by then has not been made
            await self._send([*self.composer.end_turn(INCOMPLETE), *self._uncalled()])
            return False
        await self._send(self.composer.end_turn())
        called = await self._make_calls()
        return called and not self._asks

    async def _speak(self, chat: OpenChat) -> str | None:
        """Read one generation and return why it ended."""
        self.reader, ended = chat.answer.reader(), None
        async with aclosing(chat.generation.outputs()) as outputs:
            async for _, output in outputs:
                if self.answer.prompt_ids == []:
                    self.answer.prompt_ids = output.prompt_token_ids
                events, ended = self._heard(output)
                await self._send(events)
                if self.composer.full:
                    return "stop"
        return ended

    async def _make_calls(self) -> bool:
        """Make the calls that are complete, all at once; return whether there were any."""
        calls = [call for call in self._calls if not call.closed]
        await _together([self._make(call) for call in calls])
        return bool(calls)

    async def _make(self, call: McpCallItem) -> None:
        try:
            if not any((one.label, one.tool["name"]) == (call.label, call.name) for one in self._tools.offers):
                raise ToolServerError("There is no such tool.", code=BAD_ARGUMENTS)
            events = call.returned(await self.sessions.call(call.label, call.name, call.arguments))
        except ToolServerError as error:
            events = call.broken(error)
        await self._send(events)

    def _uncalled(self) -> list[Event]:
        return [event for call in self._calls if not call.closed for event in call.cut()]

    # -- parts -----------------------------------------------------------------------------------------------------

    def _open_call(self, index: int, function: str, call_id: str) -> OpenCall:
        """Open a call of the model: of an MCP server, or of the client's own function."""
        self._made += 1
        offer = next((one for one in self._tools.offers if one.function == function), None)
        if offer is None or offer.approval:
            self._asks = True
        if offer is None:
            return self._tools.open_call(index, function, call_id)
        if offer.approval:
            return ApprovalItem(index, offer.label, offer.tool["name"], call_id)
        self._calls.append(McpCallItem(index, offer.label, offer.tool["name"], call_id))
        return self._calls[-1]

    def _calls_left(self) -> int | None:
        most = self.asked.body.max_tool_calls
        return turn_limit(self.asked.body, None if most is None else most - self._made)

    def _choice(self) -> ToolChoice:
        """A call that is demanded is demanded once; when no call is left the model has to answer."""
        most = self.asked.body.max_tool_calls
        if self.generation.count >= self.rounds or (most is not None and self._made >= most):
            return ToolChoice("none")
        return self._tools.choice if self.generation.count == 0 or self._tools.choice.mode == "none" else AUTO

    def _in_order(self) -> Sequence[Item]:
        return [self._items[index] for index in sorted(self._items)]

    async def _send(self, events: list[Event]) -> None:
        for event in events:
            if event["type"] == "response.output_item.done":
                self._items[event["output_index"]] = event["item"]
        self._outbox += events
        self._news.set()
        while len(self._outbox) > _AHEAD:
            self._room.clear()
            await self._room.wait()

    def _taken(self) -> list[Event]:
        events, self._outbox = self._outbox, []
        self._room.set()
        return events


async def all_lists(asked: Asked, sessions: RemoteSessions) -> dict[str, list[Item]]:
    """Return the servers' tools by label, for who wants to know them alone. Raises `ApiError` 400."""
    lists = _held(asked)
    for server in asked.tools.servers:
        if server.label not in lists:
            try:
                lists[server.label] = listed_tools(server, await sessions.tools(server.label))
            except ToolServerError as error:
                message = f"tools: MCP server '{server.label}' does not list its tools: {error.message}"
                raise ApiError(400, message, param="tools", code="mcp_list_failed") from None
    return lists


def _held(asked: Asked) -> dict[str, list[Item]]:
    return held_lists(asked.tools.servers, [*asked.earlier, *asked.items])


async def _together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)
