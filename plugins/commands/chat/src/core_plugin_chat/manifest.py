"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import CommandSpec

CHAT = CommandSpec(
    name="chat",
    impl="core_plugin_chat.chat:Chat",
    api=1,
    summary="Chat with a running server, or with a model in this process.",
)
RUN = CommandSpec(
    name="run",
    impl="core_plugin_chat.run:Run",
    api=1,
    summary="Chat with a model in this process.",
)
COMPLETE = CommandSpec(
    name="complete",
    impl="core_plugin_chat.complete:Complete",
    api=1,
    summary="Complete texts with a running server, or with a model in this process.",
)
