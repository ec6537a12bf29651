"""Where the prompts of a load come from: random tokens, shared prefixes, or a file with texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from core.api import ConfigError
from core_plugin_bench.prompts import Prompt, RandomPrompts

Count = Callable[[str], int]
"""Returns the number of tokens of a text."""

_SHORTEST, _LONGEST_PROMPT, _LONGEST = 4, 1024, 2048
"""Turns of a ShareGPT conversation outside these lengths are left out, as benchmarks on it usually do."""


@dataclass(frozen=True, slots=True)
class PrefixPrompts:
    """`prefixes` groups of prompts: those of a group share their first `prefix_len` tokens."""

    prefix_len: int
    suffix_len: int
    prefixes: int
    output_len: int
    vocab_size: int

    def make(self, count: int, rng: np.random.Generator) -> list[Prompt]:
        """Return `count` prompts, the groups in random order.

        Raises:
            ConfigError: Fewer prompts than prefixes (CORE-C108).
        """
        if count < self.prefixes:
            raise ConfigError(
                "CORE-C108",
                f"flag --prefix-repetition-num-prefixes: {self.prefixes} is more than the {count} prompts.",
                hint="Give a larger --num-prompts.",
            )
        sizes = [len(part) for part in np.array_split(np.arange(count), self.prefixes)]
        group = RandomPrompts(self.suffix_len, self.output_len, self.prefix_len, vocab_size=self.vocab_size)
        prompts = [prompt for size in sizes for prompt in group.make(size, rng)]
        return [prompts[index] for index in rng.permutation(count)]


def read_custom(path: str, output_len: int) -> list[Prompt]:
    """Return the prompts of a file with one JSON object a line: `prompt`, and `output_tokens` if `output_len` is -1.

    Raises:
        ConfigError: The file cannot be read or a line has no such fields (CORE-C108).
    """
    prompts = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip():
            continue
        item = _json(path, line, f"line {number}")
        length = item.get("output_tokens") if output_len == -1 and isinstance(item, dict) else output_len
        if not isinstance(item, dict) or not isinstance(item.get("prompt"), str) or not isinstance(length, int):
            raise _unreadable(path, f"line {number} needs a text 'prompt' (and 'output_tokens' with output length -1)")
        prompts.append(Prompt([], length, item["prompt"]))
    return prompts


def read_sharegpt(path: str, output_len: int | None, count: Count) -> list[Prompt]:
    """Return the first question of every conversation, with the length of its answer unless one is given.

    Raises:
        ConfigError: The file cannot be read or is no list of conversations (CORE-C108).
    """
    data = _json(path, _text(path), "it")
    if not isinstance(data, list):
        raise _unreadable(path, "it is not a list of conversations")
    prompts = []
    for item in data:
        turns = [turn.get("value") for turn in item.get("conversations", ())] if isinstance(item, dict) else []
        if len(turns) < 2 or not all(isinstance(turn, str) for turn in turns[:2]):
            continue
        length, answer = count(turns[0]), count(turns[1]) if output_len is None else output_len
        fits = length <= _LONGEST_PROMPT and length + answer <= _LONGEST
        if fits and length >= _SHORTEST and (output_len is not None or answer >= _SHORTEST):
            prompts.append(Prompt([], answer, turns[0], length))
    return prompts


def draw(prompts: Sequence[Prompt], count: int, rng: np.random.Generator, *, shuffle: bool = True) -> list[Prompt]:
    """Return `count` of the prompts in random order (or as they stand), again from the first if there are fewer.

    Raises:
        ConfigError: There is none (CORE-C108).
    """
    if not prompts:
        raise ConfigError("CORE-C108", "flag --dataset-path: the file has no prompt that can be used.")
    order = rng.permutation(len(prompts)) if shuffle else np.arange(len(prompts))
    return [prompts[order[index % len(prompts)]] for index in range(count)]


def with_text(prompts: Sequence[Prompt], decode: Callable[[list[int]], str], count: Count) -> list[Prompt]:
    """Return prompts of ids as texts, for end points that take no ids."""
    texts = [decode(prompt.token_ids) for prompt in prompts]
    return [replace(prompt, text=text, length=count(text)) for prompt, text in zip(prompts, texts)]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, str(error)) from None


def _json(path: str, text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _unreadable(path, f"{where} is not JSON: {error}") from None


def _unreadable(path: str, why: str) -> ConfigError:
    return ConfigError("CORE-C108", f"flag --dataset-path: cannot use {path}: {why}.")
