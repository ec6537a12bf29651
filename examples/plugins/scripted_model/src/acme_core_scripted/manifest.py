"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import ModelSpec

SCRIPTED = ModelSpec(
    name="scripted",
    impl="acme_core_scripted.model:Scripted",
    api=2,
    summary="Says what the prompt tells it to say, token by token; for tests",
    architectures=("ScriptedForCausalLM",),
    shape="acme_core_scripted.config:shape",
)
