"""Tool servers that need no network: what was opened and closed is remembered."""

from core.api import RemoteTool, ToolResult, ToolServerError

TOLD = []


class Shelf:
    def __init__(self, options):
        if "broken" in options:
            raise ValueError("the shelf is broken")
        TOLD.append(("options", dict(options)))

    async def open(self, url, headers):
        TOLD.append(("open", url, dict(headers)))
        return Session()


class Session:
    async def list_tools(self):
        what = {"type": "string", "enum": ["pen", "cup"]}
        schema = {"type": "object", "properties": {"what": what}, "required": ["what"], "additionalProperties": False}
        return [RemoteTool("fetch", "Fetches.", schema)]

    async def call_tool(self, name, arguments):
        if name != "fetch":
            raise ToolServerError("There is no such thing.")
        return ToolResult(f"one {arguments['what']}")

    async def close(self):
        TOLD.append(("close",))
