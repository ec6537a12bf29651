"""Facts about the served model for route plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.frontend.answering.parsing import THINKING_SWITCHES
from core.frontend.answering.thinking import knows_thinking
from core.server.interface import ServedLLM
from core.server.state import ServerState


def abilities_of(state: ServerState) -> frozenset[str]:
    """Return what can be asked for, as `EngineClient.abilities`."""
    llm, parser, pooler = state.llm, state.parser, state.llm.pooling
    if pooler is not None:
        return frozenset(pooler.tasks)
    if llm.front is not None:
        return frozenset()
    variables, honoured = llm.template_variables, llm.honoured
    bounds = honoured is None or "thinking_token_budget" in honoured
    found = {
        "complete": True,
        "chat": bool(llm.template_names),
        "tools": state.options.select.tool_parser is not None,
        "thinking": parser is not None and parser.thinking is not None,
        "switched_thinking": variables is None or not variables.isdisjoint(THINKING_SWITCHES),
        "bounded_thinking": bounds and knows_thinking(parser, llm.tokenizer),
    }
    return frozenset(name for name, there in found.items() if there)


def facts_of(llm: ServedLLM) -> Mapping[str, Any]:
    """Return what is known of the checkpoint."""
    config = llm.config
    if config is None:
        return {}
    names = ("architecture", "format", "quantization", "num_bytes")
    return {"dtype": config.dtype, **{name: getattr(config.checkpoint, name) for name in names}}


def template_variables_of(state: ServerState) -> frozenset[str] | None:
    """Return the names in a request's template variables that have an effect; None where nobody knows."""
    variables = state.llm.template_variables
    read = () if state.parser is None else ("tools", *THINKING_SWITCHES)
    return None if variables is None else variables.union(read)
