"""Grammars compiled by XGrammar."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from core.api import check_grammar_nesting, grammar_choices, grammar_json, token_table
from core_plugin_xgrammar.binding import bindings
from core_plugin_xgrammar.schema import check_pattern, exact

if TYPE_CHECKING:
    from core.api import StructuredContext

_RAW = 0
_WHERE = re.compile(r"^\[[\d:]+\] \S+:\d+: (?:Check failed: .*? is false: )?", re.DOTALL)
_WHITESPACE = "x-whitespace"


class XGrammar:
    """A `StructuredOutputBackend`. Its library is loaded when the first grammar is compiled."""

    def __init__(self, ctx: StructuredContext) -> None:
        self._ctx = ctx
        self._lock = threading.Lock()
        self._vocabularies: dict[frozenset[int], Vocabulary] = {}
        self._special: dict[str, int] | None = None

    def compile(self, kind: str, value: str) -> Compiled:
        """Compile a grammar. Raises `ValueError` with what is wrong with it."""
        make = _KINDS.get(kind)
        if make is None:
            raise ValueError(f"grammars of kind '{kind}' are not known")
        ids = self._special_in(value) if kind == "structural_tag" else frozenset()
        vocabulary = self._vocabulary(ids)
        try:
            handle = make(vocabulary.compiler(), value)
        except RecursionError:
            raise ValueError("the grammar is nested too deep") from None
        except RuntimeError as error:
            raise _meant(error) from error
        return Compiled(handle, vocabulary, ids)

    def load(self, data: bytes) -> Compiled:
        """Return what `Compiled.dump` of another process gave."""
        head, _, body = data.partition(b"\n")
        ids = frozenset(int(token) for token in json.loads(head))
        vocabulary = self._vocabulary(ids)
        return Compiled(bindings().CompiledGrammar.deserialize_json(body.decode(), vocabulary.info), vocabulary, ids)

    def _vocabulary(self, special: frozenset[int]) -> Vocabulary:
        """Return the vocabulary in which these special tokens are ordinary texts."""
        with self._lock:
            found = self._vocabularies.get(special)
            if found is None:
                found = self._vocabularies[special] = Vocabulary(self._ctx, special)
                while len(self._vocabularies) > 8:
                    del self._vocabularies[next(iter(self._vocabularies))]
            return found

    def _special_in(self, value: str) -> frozenset[int]:
        """Return the special tokens whose texts a structural tag writes; only there do they count as their text."""
        if self._special is None:
            tokenizer = self._ctx.tokenizer()
            self._special = {tokenizer.token(token): token for token in sorted(tokenizer.special_ids)}
        texts = list(_texts(grammar_json(value)))
        return frozenset(token for name, token in self._special.items() if name and any(name in one for one in texts))


class Vocabulary:
    """The tokens as the library wants them.

    Attributes:
        info: The library's own object.
        words: Words of a mask of the library, which may be wider than the model's.
        last: Bits of the last word that stand for tokens.
    """

    def __init__(self, ctx: StructuredContext, special: frozenset[int]) -> None:
        tokenizer = ctx.tokenizer()
        table = token_table(tokenizer)
        for token in special:
            table[token] = tokenizer.token(token).encode()
        size = max(ctx.vocab_size, tokenizer.vocab_size)
        tokens = [piece or b"" for piece in table]
        self.words = -(-size // 32)
        self.last = np.array(0xFFFFFFFF >> -size % 32, np.uint32).view(np.int32)
        self.info = bindings().TokenizerInfo(tokens, _RAW, size, list(tokenizer.eos_ids), False)

    def compiler(self) -> Any:
        """Return a compiler on one thread and without a cache: compiled grammars are kept by whoever asked."""
        return bindings().GrammarCompiler(self.info, 1, False, -1)


class Compiled:
    """A `CompiledGrammar`."""

    def __init__(self, handle: Any, vocabulary: Vocabulary, special: frozenset[int]) -> None:
        self._handle, self._vocabulary, self._special = handle, vocabulary, special

    def matcher(self) -> Matcher:
        """Return a matcher at the start of the grammar."""
        return Matcher(bindings().GrammarMatcher(self._handle, None, False, -1, None), self._vocabulary)

    def dump(self) -> bytes:
        """Return the grammar for another process with the same tokenizer."""
        try:
            text = str(self._handle.serialize_json())
        except RuntimeError as error:
            raise _meant(error) from error
        return json.dumps(sorted(self._special)).encode() + b"\n" + text.encode()


class Matcher:
    """A `GrammarMatcher`."""

    def __init__(self, handle: Any, vocabulary: Vocabulary) -> None:
        self._handle, self._words, self._last = handle, vocabulary.words, vocabulary.last

    def fill(self, mask: np.ndarray) -> None:
        """Set the bits of the tokens that may come next."""
        wide = mask if len(mask) == self._words else np.zeros(self._words, np.int32)
        self._handle.fill_next_token_bitmask(wide, 0, False)
        wide[-1] &= self._last
        if wide is not mask:
            mask[:] = wide[: len(mask)]

    def accept(self, token: int) -> bool:
        """Move on by a token."""
        return bool(self._handle.accept_token(token, False))

    def rollback(self, count: int) -> None:
        """Take back tokens."""
        if count:
            self._handle.rollback(count)

    def is_complete(self) -> bool:
        """Whether the text is a sentence."""
        return bool(self._handle.is_completed())


def _meant(error: RuntimeError) -> Exception:
    """Return what an error of the library means: no memory is left, or the grammar is wrong."""
    if "bad_alloc" in str(error):
        return MemoryError(str(error)[:100])
    return ValueError(_WHERE.sub("", str(error)).strip()[:500] or "the grammar is wrong")


def _json_schema(compiler: Any, value: str) -> Any:
    schema = grammar_json(value)
    whitespace = schema.pop(_WHITESPACE, "any") if isinstance(schema, dict) else "any"
    if whitespace not in ("any", "none"):
        raise ValueError("patterns of whitespace are not supported here: 'any' or 'none'")
    text = json.dumps(exact(schema))
    return compiler.compile_json_schema(text, whitespace == "any", None, None, True, None, False)


def _json_object(compiler: Any, value: str) -> Any:
    style = grammar_json(value) if value else {}
    if not isinstance(style, dict) or set(style) - {_WHITESPACE}:
        raise ValueError(f"json_object takes nothing but '{_WHITESPACE}'")
    return _json_schema(compiler, json.dumps({**style, "type": "object"}))


def _regex(compiler: Any, value: str) -> Any:
    check_grammar_nesting(value)
    check_pattern(value)
    return compiler.compile_regex(value)


def _choice(compiler: Any, value: str) -> Any:
    quoted = " | ".join(json.dumps(one, ensure_ascii=False) for one in grammar_choices(value))
    return compiler.compile_grammar_from_strings(f"root ::= {quoted}", "root")


def _grammar(compiler: Any, value: str) -> Any:
    check_grammar_nesting(value)
    if "::=" in value:
        return compiler.compile_grammar_from_strings(value, "root")
    return compiler.compile_lark(value, [], [])


def _structural_tag(compiler: Any, value: str) -> Any:
    return compiler.compile_structural_tag(json.dumps(_with_exact_schemas(grammar_json(value))))


_KINDS: Mapping[str, Callable[[Any, str], Any]] = {
    "json_schema": _json_schema,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "structural_tag": _structural_tag,
}


def _texts(value: Any) -> Iterator[str]:
    """Yield every text inside a JSON value, schemas left out: there texts are names and values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            if key not in ("json_schema", "schema", "excludes"):
                yield from _texts(one)


def _with_exact_schemas(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_exact_schemas(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: exact(one) if key == "json_schema" else _with_exact_schemas(one) for key, one in value.items()}
