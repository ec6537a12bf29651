"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import TemplateEngineSpec

JINJA = TemplateEngineSpec(
    name="jinja",
    impl="core_plugin_jinja.engine:JinjaEngine",
    api=1,
    summary="Jinja in a sandbox, as Hugging Face checkpoints have it",
    marks=("{{", "{%", "{#"),
)
