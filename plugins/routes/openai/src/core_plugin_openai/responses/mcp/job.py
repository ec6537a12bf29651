"""A response that calls tools itself: the model speaks, its calls are made, and it speaks again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from core_plugin_tool_servers.sessions import RemoteSessions

from core.api.errors import RequestError
from core.api.serving import AUTO, Answer, Delta, ToolChoice
from core.api.tool_servers import TOOL_BAD_ARGUMENTS as BAD_ARGUMENTS
from core.api.tool_servers import ToolServerError
from core_plugin_openai.responses.ask import Asked
from core_plugin_openai.responses.items import Item
from core_plugin_openai.responses.job import Put, ResponseWork, Room, no_wait
from core_plugin_openai.responses.mcp.items import approved, call_id_of
from core_plugin_openai.responses.mcp.offers import held_lists, listed_tools
from core_plugin_openai.responses.mcp.output import ApprovalItem, ListItem, McpCallItem
from core_plugin_openai.responses.mcp.request import McpServer
from core_plugin_openai.responses.mcp.turns import Turns
from core_plugin_openai.responses.output import COMPLETED, INCOMPLETE, Event, OpenCall
from core_plugin_openai.responses.params import turn_limit
from core_plugin_openai.responses.tools import Tools


@dataclass(slots=True)
class RemoteJob(ResponseWork):
    """A response with tools of MCP servers.

    Several tools may be at work at once; their events go out one after the other, and wait for a slow reader.

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
    _turn_to_put: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _put: Put = field(init=False)
    _room: Room = field(init=False)

    async def run(self, put: Put, room: Room = no_wait) -> None:
        """Give the events to `put`; the first ones come at once."""
        self._put, self._room = put, room
        self.composer.make_call = self._open_call
        try:
            if not put(self._numbered(self._started())):
                await room()
            await self._list_tools()
            await self._make_approved()
            while await self._turn():
                continue
        finally:
            await self.sessions.close()
        put(self._numbered(self._closing(self._ended)))

    def _cut(self) -> list[Event]:
        events = [*self._taken(), *ResponseWork._cut(self)]
        for item in self._lists:
            events += item.failed("The answer ended before the server answered.")
        return [*events, *self._uncalled()]

    # -- the work --------------------------------------------------------------------------------------------------

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
        wanted = self.asked.turn(list(self._in_order()), self._tools, self._choice(), left)
        generation = await self.generation.open(wanted)
        self.composer.begin_turn(self._calls_left(), generation.call_id)
        self._ended = await self._speak(generation)
        if self._ended != "stop":  # what has been called by then has not been made
            await self._send([*self.composer.end_turn(INCOMPLETE), *self._uncalled()])
            return False
        await self._send(self.composer.end_turn())
        called = await self._make_calls()
        return called and not self._asks

    async def _speak(self, generation: Answer) -> str | None:
        """Read one generation and return why it ended. Nothing else is at work meanwhile."""
        ended: str | None = None

        def take(deltas: Sequence[Delta]) -> bool:
            nonlocal ended
            self._note_prompt(generation)
            events, ended = self._heard(deltas)
            self._note(events)
            return self._pass_on() and not self.composer.full

        async def more() -> bool:
            if not self.composer.full:
                await self._room()
            return not self.composer.full

        await generation.run(take, more)
        return "stop" if self.composer.full else ended

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
        self._note(events)
        async with self._turn_to_put:
            if not self._pass_on():
                await self._room()

    def _note(self, events: list[Event]) -> None:
        for event in events:
            if event["type"] == "response.output_item.done":
                self._items[event["output_index"]] = event["item"]
        self._outbox += events

    def _pass_on(self) -> bool:
        """Put what waits; return whether there is room for more."""
        events = self._taken()
        return not events or self._put(self._numbered(self._fold(events)))

    def _taken(self) -> list[Event]:
        events, self._outbox = self._outbox, []
        return events


async def all_lists(asked: Asked, sessions: RemoteSessions) -> dict[str, list[Item]]:
    """Return the servers' tools by label, for who wants to know them alone. Raises `RequestError` 400."""
    lists = _held(asked)
    for server in asked.tools.servers:
        if server.label not in lists:
            try:
                lists[server.label] = listed_tools(server, await sessions.tools(server.label))
            except ToolServerError as error:
                message = f"tools: MCP server '{server.label}' does not list its tools: {error.message}"
                raise RequestError(message, param="tools", code="mcp_list_failed") from None
    return lists


def _held(asked: Asked) -> dict[str, list[Item]]:
    return held_lists(asked.tools.servers, [*asked.earlier, *asked.items])


async def _together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)
