"""Families of reasoning alone, and channels."""

from __future__ import annotations

from core_plugin_parsers import Block, Family, NamedCalls, Prose, Written

THINK_BLOCK = Block(("<think>",), Prose.REASONING, ("</think>",))
THINK = Family((THINK_BLOCK,))
# A model that thinks first may write the tag all the same.
THINK_FIRST = Family((THINK_BLOCK,), begins=Prose.REASONING, drops=("<think>",))

# The thinking, its end included, stays in what is shown.
APPENDED = Family(shows="<think>")
KIMI = Family((Block(("◁think▷",), Prose.REASONING, ("◁/think▷",)),))


def _channel(name: str, holds: Prose, *closes: str) -> Block:
    tag = f"<|channel|>{name}<|message|>"
    return Block((tag, f"<|start|>assistant{tag}"), holds, closes)


_CALL_HEAD = r"\s*(?P<name>[\w.-]+)(?:\s*<\|channel\|>\w+)?(?:\s*(?:<\|constrain\|>\s*\w+|json|code))?\s*"
_RECIPIENTS = tuple(
    f"{start}<|channel|>{channel} to=functions."
    for start in ("", "<|start|>assistant")
    for channel in ("commentary", "analysis")
)

HARMONY = Family(
    (
        _channel("analysis", Prose.REASONING, "<|end|>"),
        _channel("final", Prose.TEXT, "<|return|>", "<|end|>"),
        _channel("commentary", Prose.TEXT, "<|end|>"),
        Block(
            (*_RECIPIENTS, "<|start|>assistant to=functions."),
            NamedCalls(name=_CALL_HEAD, name_ends=("<|message|>",), call_closes=("<|call|>",), single=True),
        ),
    ),
    written=Written(
        "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
        "",
        between=None,
        before="<|start|>assistant",
    ),
)
