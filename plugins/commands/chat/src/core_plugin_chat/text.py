"""Text that came from elsewhere, made fit for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Drop control characters other than line breaks and tabs: a model must not drive the terminal."""
    return "".join(char for char in text if char in "\n\t" or (ord(char) >= 32 and not 127 <= ord(char) < 160))
