"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from acme_core_moderation.spec import ModeratorSpec

WORDS = ModeratorSpec(
    name="words",
    impl="acme_core_words.words:Words",
    api=1,
    summary="Objects to texts with words of a list",
    categories=("word-list",),
    options="acme_core_words.options:WordOptions",
)
