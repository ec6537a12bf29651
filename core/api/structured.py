"""Structured output: grammars that say which token may come next. Provisional.

A backend compiles a grammar in a child process, bounded in time and memory, while the request waits; what came out well
is brought into the engine's process and gives every request a matcher. The engine asks the matcher for a mask in each
step of its row, and tells it every token that was chosen.

A schema means what JSON Schema says: objects that say nothing of further properties are open. Core closes those that
name their properties before it hands a schema over (`additionalProperties: false`), unless users want them open.

The JSON of `json_schema`, and the value of `json_object`, which is otherwise empty, may have a key `x-whitespace`: any
white space between the parts of the JSON text (`any`, as without the key), `none`, or a pattern of what is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from core.api.tokenizer import Tokenizer

GRAMMAR_KINDS = ("json_schema", "json_object", "regex", "choice", "grammar", "structural_tag")
"""Kinds of grammar a request may carry; `value` is JSON text, a pattern, a JSON list of texts, or EBNF."""

MAX_CHOICES = 10_000
"""Most texts of kind `choice`."""

MAX_NESTING = 200
"""Brackets inside each other, beyond which the recursive parsers of libraries are not trusted."""


@dataclass(frozen=True, slots=True)
class StructuredContext:
    """Context that a structured-output backend is constructed with.

    Attributes:
        vocab_size: Bits of a mask.
        tokenizer: Returns the model's tokenizer (its `eos_ids` are what a matcher allows once the grammar is
            complete); call it when it is first needed, because loading it takes time.
        options: The plugin's own options.
    """

    vocab_size: int
    tokenizer: Callable[[], Tokenizer]
    options: Mapping[str, Any] = field(default_factory=dict)


class GrammarMatcher(Protocol):
    """Where one sequence stands in a grammar."""

    def fill(self, mask: np.ndarray) -> None:
        """Set bit `t % 32` of `mask[t // 32]` (int32, all zero before) for every token `t` that may come next.

        Raises:
            RuntimeError: A limit of the library is reached; the sequence ends with this reason.
        """
        ...

    def accept(self, token: int) -> bool:
        """Move on by a chosen token; False if the grammar does not allow it (the sequence then ends with an error).

        Tokens that end the text are not told.

        Raises:
            RuntimeError: A limit of the library is reached; the sequence ends with this reason.
        """
        ...

    def rollback(self, count: int) -> None:
        """Take back the last `count` accepted tokens, for drafts that were refused."""
        ...

    def is_complete(self) -> bool:
        """Whether the text so far is a whole sentence of the grammar."""
        ...


class CompiledGrammar(Protocol):
    """A grammar ready for use, shared by the requests that carry it."""

    def matcher(self) -> GrammarMatcher:
        """Return a matcher at the beginning of the grammar, for one sequence."""
        ...


class PortableGrammar(CompiledGrammar, Protocol):
    """A grammar of a backend whose descriptor says `isolate`."""

    def dump(self) -> bytes:
        """Return the grammar for `LoadsGrammars.load` of another process with the same tokenizer."""
        ...


class StructuredOutputBackend(Protocol):
    """Runtime of a `StructuredOutputSpec`, in the engine process and in child processes of it. Torch-free."""

    def __init__(self, ctx: StructuredContext) -> None: ...

    def compile(self, kind: str, value: str) -> CompiledGrammar:
        """Compile a grammar. Raises `ValueError` saying what is wrong with the grammar.

        Runs in a child process, and in a thread of the engine's if what that one compiled cannot be sent.
        """
        ...


class LoadsGrammars(StructuredOutputBackend, Protocol):
    """A backend whose descriptor says `isolate`; its `compile` gives `PortableGrammar`s."""

    def load(self, data: bytes) -> CompiledGrammar:
        """Return a grammar that another process compiled; runs in a thread, and takes no longer than compiling did."""
        ...


def grammar_json(value: str) -> Any:
    """Return the JSON value of a grammar. Raises `ValueError` for what is none, NaN and infinities among it."""
    try:
        return json.loads(value, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from error


def grammar_choices(value: str) -> list[str]:
    """Return the texts of a grammar of kind `choice`. Raises `ValueError`."""
    choices = grammar_json(value)
    if not isinstance(choices, list) or not choices or not all(isinstance(one, str) and one for one in choices):
        raise ValueError("a choice is a JSON list of texts that are not empty")
    return choices


def check_grammar_nesting(text: str) -> None:
    """Refuse what a recursive parser may not survive. Raises `ValueError`."""
    depth = deepest = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        raise ValueError(f"it is nested more than {MAX_NESTING} deep")


def _no_constant(name: str) -> Any:
    raise ValueError(f"it is not JSON: {name}")
