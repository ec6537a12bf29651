"""Grammars run by llguidance. Its limits bound the work of every mask."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from core.api import check_grammar_nesting, grammar_choices, grammar_json, token_table
from core_plugin_llguidance.ebnf import lark_of
from core_plugin_llguidance.tags import Lark, lark, special_names, tag_grammar

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from core.api import StructuredContext, Tokenizer

_WHITESPACE = "x-whitespace"
_LEXER_STATES = 50_000
"""States that the library may add to a grammar while texts are written, at one or two kilobytes each."""
_PLACE = re.compile(r"^at \d+\(\d+\): ")
_VERBOSITY = "<non-verbose/>"
_CLEARER = {"NoExtensionBias": "no text fits it"}
_SOURCE = re.compile(r"\n[ \t]*1 \| %llguidance.*", re.DOTALL)
_LINES = re.compile(r"\n[ \t]*\d+ \| .*", re.DOTALL)


class LLGuidance:
    """A `StructuredOutputBackend`. Its library is loaded when the first grammar is compiled."""

    def __init__(self, ctx: StructuredContext) -> None:
        self._ctx = ctx
        self._lock = threading.Lock()
        self._vocabulary: LLTokenizer | None = None

    def compile(self, kind: str, value: str) -> Compiled:
        """Compile a grammar. Raises `ValueError` with what is wrong with it."""
        make = _KINDS.get(kind)
        if make is None:
            raise ValueError(f"grammars of kind '{kind}' are not known")
        try:
            source = make(value, self._ctx.tokenizer())
        except RecursionError:
            raise ValueError("the grammar is nested too deep") from None
        return self._compiled(source, show=kind == "grammar")

    def load(self, data: bytes) -> Compiled:
        """Return what `Compiled.dump` of another process gave; the library has no form of its own for what it built."""
        return self._compiled(data.decode(), show=False)

    def _compiled(self, source: str, *, show: bool) -> Compiled:
        """Compile a grammar in the library's dialect. Raises `ValueError`, with the place if that is to `show`."""
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(verbose_errors=False, max_lexer_states=_LEXER_STATES)
        vocabulary = self._tokens()
        matcher = LLMatcher(vocabulary, source, log_level=0, limits=limits)
        if matcher.is_error():
            said = matcher.get_error()
            raise ValueError(_said(said if show else _LINES.sub("", said)))
        return Compiled(matcher, vocabulary.vocab_size, source)

    def _tokens(self) -> LLTokenizer:
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = _vocabulary(self._ctx)
            return self._vocabulary


class _Tokens:
    """A tokenizer as the library expects one."""

    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: Tokenizer, tokens: Sequence[bytes], size: int) -> None:
        self._tokenizer = tokenizer
        self.tokens = tokens
        self.eos_token_id = tokenizer.eos_ids[0]
        self.bos_token_id = tokenizer.bos_id
        nameless = range(tokenizer.vocab_size, size)
        self.special_token_ids = sorted({*tokenizer.special_ids, *tokenizer.eos_ids, *nameless})

    def __call__(self, text: bytes | str) -> list[int]:
        """Return the ids of a text."""
        plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        ids: list[int] = self._tokenizer.encode(plain, add_special_tokens=False)
        return ids


def _vocabulary(ctx: StructuredContext) -> LLTokenizer:
    from llguidance import LLTokenizer

    tokenizer = ctx.tokenizer()
    if not tokenizer.eos_ids:
        raise ValueError("the tokenizer has no end of text, which llguidance needs")
    size = max(ctx.vocab_size, tokenizer.vocab_size)
    tokens = [piece or b"" for piece in token_table(tokenizer)]
    # The library wants names for special tokens; a leading byte that no text has keeps them apart from it.
    for token in {*tokenizer.special_ids, *tokenizer.eos_ids}:
        if token < len(tokens):
            tokens[token] = b"\xff" + tokenizer.token(token).encode()
    tokens += [b"\xff<unnamed %d>" % token for token in range(len(tokens), size)]
    described: Any = _Tokens(tokenizer, tokens, size)
    return LLTokenizer(described, n_vocab=size, eos_token=list(tokenizer.eos_ids))


class Compiled:
    """A `CompiledGrammar`: a matcher at the start, of which copies are made."""

    def __init__(self, start: LLMatcher, vocabulary: int, source: str) -> None:
        self._start, self._tokens, self._source = start, vocabulary, source

    def matcher(self) -> Matcher:
        """Return a matcher at the start of the grammar."""
        return Matcher(self._start.deep_copy(), self._tokens)

    def dump(self) -> bytes:
        """Return the grammar for another process with the same tokenizer."""
        return self._source.encode()


class Matcher:
    """A `GrammarMatcher`."""

    def __init__(self, matcher: LLMatcher, tokens: int) -> None:
        self._matcher, self._tokens, self._words = matcher, tokens, -(-tokens // 32)

    def fill(self, mask: np.ndarray) -> None:
        """Set the bits of the tokens that may come next. Raises `RuntimeError` when a limit is reached."""
        if len(mask) == self._words:
            self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        else:
            wide = np.zeros(self._words, np.int32)
            self._matcher.unsafe_compute_mask_ptr(wide.ctypes.data, wide.nbytes)
            mask[:] = wide[: len(mask)]
        if self._matcher.is_error():
            raise RuntimeError(_said(self._matcher.get_error()))

    def accept(self, token: int) -> bool:
        """Move on by a token. Raises `RuntimeError` when a limit is reached."""
        # Asked first: a token that is refused would leave the matcher unable to go on.
        known = 0 <= token < self._tokens and self._matcher.validate_tokens([token]) == 1
        if known and self._matcher.consume_token(token):
            return True
        # A limit that another text of the same grammar has met, which shares the lexer, is told by a mask alone.
        self.fill(np.zeros(self._words, np.int32))
        return False

    def rollback(self, count: int) -> None:
        """Take back tokens."""
        if count:
            self._matcher.rollback(count)

    def is_complete(self) -> bool:
        """Whether the text is a sentence."""
        return bool(self._matcher.is_accepting())


def _said(text: str) -> str:
    """Return an error of the library in one line, without the place in a source that is not the user's."""
    text = _PLACE.sub("", _SOURCE.sub("", text.strip())).removesuffix(_VERBOSITY).strip()
    return _CLEARER.get(text) or " ".join(text.split())[:500]


def _json_schema(value: str, tokenizer: Tokenizer) -> str:
    schema = grammar_json(value)
    if not isinstance(schema, (dict, bool)):
        raise ValueError("a schema is a JSON object, true or false")
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    whitespace = schema.pop(_WHITESPACE, "any")
    if whitespace != "any":
        style = {"whitespace_flexible": False} if whitespace == "none" else {"whitespace_pattern": whitespace}
        schema["x-guidance"] = style
    return lark(f"start: %json {json.dumps(schema)}")


def _json_object(value: str, tokenizer: Tokenizer) -> str:
    style = grammar_json(value) if value else {}
    if not isinstance(style, dict) or set(style) - {_WHITESPACE}:
        raise ValueError(f"json_object takes nothing but '{_WHITESPACE}'")
    return _json_schema(json.dumps({**style, "type": "object"}), tokenizer)


def _regex(value: str, tokenizer: Tokenizer) -> str:
    from llguidance import regex_to_lark

    check_grammar_nesting(value)
    return lark(f"start: /{regex_to_lark(value, use_ascii='')}/")


def _choice(value: str, tokenizer: Tokenizer) -> str:
    quoted = " | ".join(json.dumps(one, ensure_ascii=False) for one in grammar_choices(value))
    return lark(f"start: CHOICE\nCHOICE: {quoted}")


def _grammar(value: str, tokenizer: Tokenizer) -> str:
    source = lark_of(value)
    return source if source.lstrip().startswith("%llguidance") else lark(source)


def _structural_tag(value: str, tokenizer: Tokenizer) -> str:
    return tag_grammar(grammar_json(value), Lark(special_names(tokenizer), lark_of))


_KINDS: Mapping[str, Callable[[str, Tokenizer], str]] = {
    "json_schema": _json_schema,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "structural_tag": _structural_tag,
}
