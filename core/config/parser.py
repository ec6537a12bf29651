"""An argument parser that never exits on its own and suggests what was meant. Standard library only."""

from __future__ import annotations

import argparse
import difflib
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from core.api.errors import ConfigError

_PARALLEL = "This version runs one worker on one device."
_GRAPHS = "How steps are captured and replayed is the platform's business and needs no flag."
_DRAFTS = "Speculative decoding is not available in this version."
_LORA = "LoRA adapters are not available in this version."
_EXECUTOR = "Name the plugin instead: --executor NAME (see `core plugins list`)."

REFUSED: Mapping[str, str] = types.MappingProxyType(
    {
        "--tensor-parallel-size": _PARALLEL,
        "-tp": _PARALLEL,
        "--pipeline-parallel-size": _PARALLEL,
        "-pp": _PARALLEL,
        "--data-parallel-size": _PARALLEL,
        "-dp": _PARALLEL,
        "--enable-expert-parallel": _PARALLEL,
        "--distributed-executor-backend": _EXECUTOR,
        "--enforce-eager": _GRAPHS,
        "--compilation-config": _GRAPHS,
        "--speculative-config": _DRAFTS,
        "--enable-lora": _LORA,
        "--lora-modules": _LORA,
        "--trust-remote-code": "Code from a checkpoint is never run; install a model plugin instead.",
        "--enable-chunked-prefill": "Prompts are always computed in chunks; --max-num-batched-tokens sets the budget.",
        "--no-enable-chunked-prefill": "Prompts are always computed in chunks.",
        "--enable-auto-tool-choice": "Give --tool-parser NAME: tool calls are then parsed whenever tools are sent.",
        "--tool-parser-plugin": "Tool parsers are installed distributions; see `core plugins list`.",
        "--async-scheduling": "Steps always overlap; --overlap-depth sets how far.",
        "--no-async-scheduling": "Use --overlap-depth 0.",
        "--cpu-offload-gb": "Weights stay on the device; for the KV cache see --kv-connector.",
        "--kv-transfer-config": "Use --kv-connector NAME and --opt NAME.KEY=VALUE.",
    }
)
"""Flags that users of other servers know and that mean nothing here, each with the reason or the replacement."""


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return a `did you mean` sentence for the closest candidate, or an empty text."""
    close = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else ""


class CoreParser(argparse.ArgumentParser):
    """`ArgumentParser` whose errors are `ConfigError`s.

    Attributes:
        spellings: Further spellings of flags, each with the one that is registered.
        rest: Attribute of the result that gets what follows a word `--`, as it is; empty for none.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})
        self.spellings: dict[str, str] = {}
        self.rest = ""

    def keep_rest(self, dest: str) -> None:
        """Hand what follows a word `--` over as the list `dest`: it is meant for another program."""
        self.rest = dest
        self.set_defaults(**{dest: []})

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting, so that every mistake is printed in one place."""
        raise ConfigError("CORE-C104", f"{self.prog}: {message}.", hint=f"See `{self.prog} --help`.")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse after unifying the spellings; refuse what is left over."""
        mine, theirs = self._cut(None if args is None else list(args))
        words = None if mine is None else [self._unify(word) for word in mine]
        found, left = super().parse_known_args(words, namespace)
        if theirs:
            setattr(found, self.rest, theirs)
        if left:
            self._refuse(left[0])
        return found, left

    def _cut(self, words: list[str] | None) -> tuple[list[str] | None, list[str]]:
        if not self.rest or words is None or "--" not in words:
            return words, []
        place = words.index("--")
        return words[:place], words[place + 1 :]

    def _unify(self, word: str) -> str:
        if not word.startswith("--"):
            return word
        name, equals, value = word.partition("=")
        dashed = name.replace("_", "-")
        if dashed in self.spellings or dashed in self._option_string_actions:
            name = self.spellings.get(dashed, dashed)
        return name + equals + value

    def _refuse(self, word: str) -> NoReturn:
        flag = word.partition("=")[0]
        if not flag.startswith("-"):
            raise ConfigError(
                "CORE-C104", f"{self.prog}: unexpected argument {word!r}.", hint=f"See `{self.prog} --help`."
            )
        if flag in REFUSED:
            raise ConfigError("CORE-C105", f"{self.prog}: flag {flag} is not supported.", hint=REFUSED[flag])
        known = [*self._option_string_actions, *self.spellings]
        hint = nearest(flag, known) or f"See `{self.prog} --help`."
        raise ConfigError("CORE-C104", f"{self.prog}: unknown flag {flag}.", hint=hint)
