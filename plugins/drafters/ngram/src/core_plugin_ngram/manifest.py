"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import DrafterSpec

NGRAM = DrafterSpec(
    name="ngram",
    impl="core_plugin_ngram.drafter:NGramDrafter",
    api=2,
    summary="Guesses what followed the same tokens before, in prompt or output",
    options="core_plugin_ngram.options:NGramOptions",
    max_draft=64,
)
