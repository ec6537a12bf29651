"""EBNF (llama.cpp's GBNF) in llguidance's dialect of Lark, by the library's converter."""

from __future__ import annotations

import re

from core.api import check_grammar_nesting

_LARK = re.compile(r"%llguidance\b|start[ \t]*:(?!:=)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_KEPT_OR_BLANK = re.compile(
    r"""("[^"\\]*(?:\\.[^"\\]*)*"?|\[[^\]\\]*(?:\\.[^\]\\]*)*\]?)|(?:\s+|\#[^\r\n]*)+""", re.DOTALL | re.VERBOSE
)
"""A text or a class of characters; else white space and comments."""


def lark_of(text: str) -> str:
    """Return a grammar in the library's dialect of Lark. Raises `ValueError`."""
    check_grammar_nesting(text)
    if "::=" not in text or _is_lark(text):
        return text
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return str(gbnf_to_lark(_without_blanks(_ESCAPE.sub(_character, text))))
    except RecursionError:
        raise
    except Exception as error:  # the converter has an exception of its own
        raise ValueError(f"it cannot be read as EBNF: {error}"[:500]) from error


def _is_lark(text: str) -> bool:
    """Whether a text that has `::=` in it is Lark all the same. The library's own test takes quadratic time."""
    return any(_LARK.match(line.lstrip()) for line in text.splitlines())


def _without_blanks(text: str) -> str:
    """Return EBNF with each run of white space and comments as one character, which the converter reads quicker."""
    return _KEPT_OR_BLANK.sub(_shorter, text)


def _shorter(found: re.Match[str]) -> str:
    """Return what is kept, or what a run of white space and comments means."""
    if found[1] is not None:
        return found[1]
    return "\n" if "\n" in found[0] or "\r" in found[0] else " "


def _character(escape: re.Match[str]) -> str:
    """Return an escaped character as itself: the converter drops leading zeros of the digits of `\\u` and `\\U`."""
    if len(escape[1]) == 1:
        return escape[0]
    code = int(escape[1][1:], 16)
    if code < 0xA0:  # control characters, and what has a meaning in a pattern
        return f"\\x{code:02X}"
    return escape[0] if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF else chr(code)
