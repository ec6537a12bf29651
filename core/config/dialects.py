"""Flags, keys and values of other servers: what installed plugins of the kind `core.flag_dialects` make of them.

No plugin is imported before a word is met that core does not know. Several are asked in order of their names; the first
that knows a word decides. One that fails is told of, and the others are asked.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from core.api.flags import FlagDialect
    from core.plugins.entry import Entry

GROUP = "core.flag_dialects"

_log = logging.getLogger(__name__)


class _Installed(NamedTuple):
    entry: Entry
    dialect: FlagDialect


def translate(words: Sequence[str], known: Collection[str]) -> list[str]:
    """Return a command line whose flags of other servers are left out, or replaced by core's.

    Args:
        known: Flags that are options here; a line that has no others is returned as it is.

    Raises:
        ConfigError: A flag is refused (CORE-C105) or lacks its value (CORE-C104).
    """
    for one in _installed() if unknown_flags(words, known) else ():
        translated = _ask(one, "translate", words, known)
        words = words if translated is None else translated
    return list(words)


def option_of(name: str) -> str | None:
    """Return the option of core's, with dashes, that an unknown name means; None: nobody knows it."""
    option: str | None = _first("option", name) if name else None
    return option


def unknown_flags(words: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the words that look like flags and are none of `known`; numbers are values."""
    return [word for word in words if _is_flag(word) and word.partition("=")[0] not in known]


def settings_of(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Return what an unknown key of a configuration file sets, by names of options; None: nobody knows the key.

    Raises `ConfigError` as `translate`.
    """
    pairs: list[tuple[str, Any]] | None = _first("setting", key, value)
    return pairs


def spelled(path: str, value: str) -> str:
    """Return core's name of a value that an option does not take; the value itself if nobody knows it."""
    spelling: str | None = _first("spelled", path, value)
    return value if spelling is None else spelling


def describe(name: str) -> list[str] | None:
    """Return lines that say what a flag of another server means here; None: nobody knows it."""
    lines: list[str] | None = _first("describe", name)
    return lines


def lead() -> str:
    """Return why an option may be unknown: a section that cannot be used, or nothing knows flags of other servers."""
    from core.config.sections import sections
    from core.plugins.catalog import Catalogue
    from core.plugins.known import Table

    if faults := sections().faults:
        return " ".join(str(fault.error()) for fault in faults)
    if Catalogue.scan().entries(GROUP):
        return ""
    return " ".join(f"{row.dist} knows {row.what}: `pip install {row.dist}`." for row in Table.read().providing(GROUP))


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not (word[1].isdigit() or word[1] == ".")


def _first(method: str, *arguments: Any) -> Any:
    """Return the answer of the first dialect that has one, or None."""
    answers = (_ask(one, method, *arguments) for one in _installed())
    return next((answer for answer in answers if answer is not None), None)


def _ask(one: _Installed, method: str, *arguments: Any) -> Any:
    """Return a dialect's answer, a sequence as a list; None, with a warning, where it fails: others may know more."""
    from core.api.errors import PluginError
    from core.plugins.drivers import guarded

    try:
        answer = guarded(one.entry, f"{method}()", getattr(one.dialect, method), *arguments)
        return answer if answer is None or isinstance(answer, str) else guarded(one.entry, f"{method}()", list, answer)
    except PluginError as error:
        _tell(str(error))
        return None


@lru_cache(maxsize=64)
def _tell(fault: str) -> None:
    """Log a fault of a dialect, once: it is asked of every word."""
    _log.warning("%s", fault)


def _installed() -> tuple[_Installed, ...]:
    from core.plugins.defined import stamps

    return _at(stamps())


@lru_cache(maxsize=4)
def _at(_: tuple[tuple[str, int], ...]) -> tuple[_Installed, ...]:
    from core.plugins.catalog import Catalogue

    return tuple(_made(Catalogue.scan().entries(GROUP)))


def _made(entries: Sequence[Entry]) -> Iterator[_Installed]:
    """Yield what can be used; a dialect that fails is told of, and what is left of the line is read without it."""
    from core.api.errors import PluginError
    from core.plugins.drivers import instantiate, load_descriptors

    candidates, failures = load_descriptors(entries)
    for failure in failures:
        _tell(str(failure.error()))
    for candidate in candidates:
        try:
            yield _Installed(candidate.entry, instantiate(candidate, {}))
        except PluginError as error:
            _tell(str(error))
