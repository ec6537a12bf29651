"""Tool servers: whose tools the server calls itself while it makes an answer. Provisional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A tool that a server lists.

    Attributes:
        name: As the server calls it; any text.
        description: For the model.
        input_schema: JSON schema of the arguments.
        annotations: Hints of the server, such as `readOnlyHint`; nothing that can be relied on.
    """

    name: str
    description: str | None = None
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a tool call.

    Attributes:
        text: What the model reads; JSON where the tool gave data instead of text.
        failed: The tool says that it could not do what it was asked for; `text` says why.
    """

    text: str
    failed: bool = False


class ToolServerError(Exception):
    """The server cannot be reached, or answers with an error of its own. Core passes it on to model and client.

    Args:
        message: What happened, without secrets (headers, queries of addresses).
        kind: `http` when there was an HTTP answer, and `code` is its status; `protocol` otherwise.
        code: Status, or the protocol's number of the error.
    """

    def __init__(self, message: str, *, kind: Literal["http", "protocol"] = "protocol", code: int = -32603) -> None:
        super().__init__(message)
        self.message, self.kind, self.code = message, kind, code


TOOL_BAD_ARGUMENTS = -32602
"""`ToolServerError.code` of arguments that are no object: the model's mistake, which it is told."""


@dataclass(frozen=True, slots=True)
class ToolEndpoint:
    """Where a tool server is.

    Attributes:
        url: Its address; never shown.
        headers: Sent with every request; never shown.
        shown: The address as answers repeat it; None for the operator's servers.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    shown: str | None = None


class ToolSession(Protocol):
    """A connection to one tool server, for one answer.

    All calls come from one event loop, from any of its tasks, and may overlap. Core gives each a time limit by
    cancelling it: a call that is cancelled tells its server and leaves the session as it was.
    """

    async def list_tools(self) -> Sequence[RemoteTool]:
        """Return every tool. Raises `ToolServerError`."""
        ...

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a tool. Raises `ToolServerError`."""
        ...

    async def close(self) -> None:
        """End the connection; called once, also after failures."""
        ...


class ToolServerClient(Protocol):
    """Runtime of a `ToolServerSpec`, in the front end. Torch-free to import."""

    def __init__(self, options: Mapping[str, Any]) -> None: ...

    async def open(self, url: str, headers: Mapping[str, str]) -> ToolSession:
        """Connect to a server, which core has checked to be an allowed one.

        Neither `url` nor `headers` may reach a log, and no redirect to another host is followed: both would give away
        what the operator entrusted to this host alone.

        Raises:
            ToolServerError: It cannot be reached.
        """
        ...
