"""The word list by itself."""

from __future__ import annotations

from acme_core_words.words import Words


def test_whole_words_count_whatever_their_capitals():
    words = Words({"words": ["Heist"]})
    assert words.look("Plan a HEIST, please.") == {"word-list": 1.0}
    assert words.look("Heists are many.") == words.look("") == {"word-list": 0.0}
    assert "not allowed" in words.explain("word-list")
