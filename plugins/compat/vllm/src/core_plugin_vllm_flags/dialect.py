"""The dialect as core asks it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from core_plugin_vllm_flags.names import NAMES, SPELLINGS
from core_plugin_vllm_flags.translation import describe, key_settings, translate


class VllmFlags:
    """vLLM's flags."""

    def option(self, name: str) -> str | None:
        """Return core's name of an option that vLLM has by another."""
        return NAMES.get(name)

    def translate(self, words: Sequence[str], known: Collection[str]) -> Sequence[str]:
        """Return a command line without flags of vLLM's: accepted ones are left out, mapped ones replaced."""
        return translate(words, known)

    def setting(self, key: str, value: Any) -> Iterable[tuple[str, Any]] | None:
        """Return what a key of vLLM's sets."""
        return key_settings(key, value)

    def spelled(self, path: str, value: str) -> str | None:
        """Return core's name of a value for which vLLM has a further one."""
        return SPELLINGS.get(path, {}).get(value)

    def describe(self, name: str) -> Sequence[str] | None:
        """Return lines that say what a flag of vLLM's means here."""
        return describe(name)
