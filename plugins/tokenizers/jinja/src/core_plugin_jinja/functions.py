"""Functions and filters of chat templates beside Jinja's own: a refusal, today's date, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NoReturn

from jinja2.exceptions import SecurityError

from core_plugin_jinja.plain_text import MARK

_MAX_INDENT = 16
_MAX_DATE_FORMAT = 100
_MARK_ASCII = json.dumps(MARK).strip('"')


class RefusalError(Exception):
    """A template called `raise_exception`; the message is the template's."""


def _raise_exception(message: object) -> NoReturn:
    raise RefusalError(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > _MAX_DATE_FORMAT or any(char.isdigit() for char in form):
        raise SecurityError("strftime_now takes short formats without widths")
    return datetime.now().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML, which prompts must not."""
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise SecurityError(f"tojson indents by at most {_MAX_INDENT} blanks")
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return text.replace(_MARK_ASCII, MARK) if ensure_ascii else text


FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
)
FILTERS: Mapping[str, Callable[..., Any]] = MappingProxyType({"tojson": _tojson})
