"""Kinds of text outside calls."""

from __future__ import annotations

from enum import Enum


class Prose(Enum):
    """Kinds of text."""

    TEXT = "shown"
    REASONING = "thinking"
    DROPPED = "seen by nobody"
