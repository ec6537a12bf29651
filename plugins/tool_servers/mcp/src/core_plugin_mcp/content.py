"""Results of tools, as text for the model."""

from __future__ import annotations

import json
from typing import Any

from mcp.types import CallToolResult


def result_text(result: CallToolResult) -> str:
    """Return the texts of a result, one below the other; its data as JSON where there is no content.

    Pictures, sounds and files are named, not shown: the models read text.
    """
    parts = [_part(one) for one in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def _part(block: Any) -> str:
    kind = block.type
    if kind == "text":
        return str(block.text)
    if kind == "resource":
        text = getattr(block.resource, "text", None)
        return str(text) if text is not None else f"[a file: {block.resource.uri}]"
    if kind == "resource_link":
        return f"[a link: {block.name} {block.uri}]"
    return f"[{kind}: {getattr(block, 'mime_type', 'unknown')}]"
