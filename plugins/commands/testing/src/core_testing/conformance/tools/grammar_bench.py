"""Grammars to compile, a tokenizer that knows every byte, and matchers walked through a grammar token by token."""

from __future__ import annotations

import random
import types
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from core.api.descriptors import StructuredOutputSpec
from core.api.structured import CompiledGrammar, GrammarMatcher, StructuredContext, StructuredOutputBackend
from core.api.tokenizer import Tokenizer
from core_testing.conformance.outcome import Failed, Unavailable, require
from core_testing.conformance.samples import GrammarSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.grammar_samples import TAGS
from core_testing.conformance.tools.options import some_options
from core_testing.conformance.tools.tokenizers import tokenizer_of

PADDING = 37
"""Tokens of the model's vocabulary that the tokenizer does not have."""

_SCHEMA_BAD = ('{"type": ', "[", "no JSON")

STANDARD: Mapping[str, Sequence[GrammarSample]] = types.MappingProxyType(
    {
        "choice": [
            GrammarSample(
                "some words",
                "choice",
                '["red", "green apple", "re", "gr\\u00fcn \\u2603"]',
                sentences=("red", "green apple", "re", "gr\u00fcn \u2603"),
                others=("r", "green", "redd", "", "blue", "green  apple"),
                bad=("red", "{}", '["red"'),
            )
        ],
        "regex": [
            GrammarSample(
                "digits and letters",
                "regex",
                "[0-9]{2,4}(-[a-f]+)?",
                sentences=("12", "1234", "123-abc"),
                others=("1", "12345", "12-", "x", "", "12-xyz"),
                bad=("(", "[a-", "*"),
            )
        ],
        "json_object": [
            GrammarSample(
                "any object",
                "json_object",
                "",
                sentences=("{}", '{"a": [1, null, true, "x\\ny", -2.5e3, {}]}'),
                others=("", "{", "[1]", '{"a": }', '{"a": 1,}', "{} x"),
            )
        ],
        "json_schema": [
            GrammarSample(
                "an enumeration",
                "json_schema",
                '{"enum": ["red", 5]}',
                sentences=('"red"', "5"),
                others=("red", '"blue"', "6", "", "{}"),
                bad=_SCHEMA_BAD,
            ),
            GrammarSample(
                "one number in a list",
                "json_schema",
                '{"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 1}',
                sentences=("[7]", "[-12]"),
                others=("[]", '["7"]', "[7", "7"),
            ),
        ],
        "structural_tag": TAGS,
    }
)
"""Grammars of these kinds that every backend compiles; of `grammar` dialects differ, so that plugins ship samples."""


class GrammarBench:
    """One backend with the kit's tokenizer.

    Attributes:
        loads: How often the tokenizer was asked for.
    """

    def __init__(self, subject: Subject) -> None:
        self.tokenizer = tokenizer_of(subject)
        self.vocabulary = self.tokenizer.vocab_size + PADDING
        self.loads = 0
        context = StructuredContext(self.vocabulary, self._load, some_options(subject))
        self.backend: StructuredOutputBackend = subject.impl()(context)

    def compile(self, sample: GrammarSample) -> CompiledGrammar:
        """Compile a sample's grammar. Raises `Failed` when it is refused."""
        try:
            return self.backend.compile(sample.kind, sample.value)
        except ValueError as error:
            raise Failed(f"'{sample.name}': it refuses the {sample.kind} {sample.value!r}: {error}") from error

    def walk(self, grammar: CompiledGrammar) -> Walk:
        """Return a new walk through a grammar."""
        return Walk(grammar, self.vocabulary, self.tokenizer)

    def tokenizations(self, text: str) -> Iterator[list[int]]:
        """Yield ways to write a text: as the tokenizer does, and with as many tokens as there are characters."""
        yield self.tokenizer.encode(text, add_special_tokens=False)
        yield [token for letter in text for token in self.tokenizer.encode(letter, add_special_tokens=False)]

    def takes(self, grammar: CompiledGrammar, text: str) -> bool:
        """Whether a text is a sentence, in one way at least to cut it into tokens."""
        for tokens in self.tokenizations(text):
            walk = self.walk(grammar)
            if all(token in walk.allowed() and walk.accept(token) for token in tokens) and walk.matcher.is_complete():
                return True
        return False

    def _load(self) -> Tokenizer:
        self.loads += 1
        return self.tokenizer


class Walk:
    """One matcher and the tokens that it accepted."""

    def __init__(self, grammar: CompiledGrammar, vocabulary: int, tokenizer: Tokenizer) -> None:
        self._grammar, self._vocabulary, self._tokenizer = grammar, vocabulary, tokenizer
        self.matcher: GrammarMatcher = grammar.matcher()
        self.path: list[int] = []

    @property
    def text(self) -> str:
        """Text that was accepted so far."""
        return self._tokenizer.decode(self.path, skip_special_tokens=False)

    def mask(self) -> np.ndarray:
        """Return `(words,)` int32 as `fill` makes it."""
        mask = np.zeros(-(-self._vocabulary // 32), np.int32)
        self.matcher.fill(mask)
        return mask

    def allowed(self) -> list[int]:
        """Return the tokens that may come next, the end of the text among them."""
        found: list[int] = np.flatnonzero(np.unpackbits(self.mask().view(np.uint8), bitorder="little")).tolist()
        return found

    def onward(self) -> list[int]:
        """Return the tokens that may come next and do not end the text."""
        return [token for token in self.allowed() if token not in self._tokenizer.eos_ids]

    def accept(self, token: int) -> bool:
        """Move on by a token, and say whether it was accepted."""
        accepted = self.matcher.accept(token)
        require(isinstance(accepted, bool), f"accept gives {accepted!r}, due is True or False")
        if accepted:
            self.path.append(token)
        return accepted

    def again(self) -> Walk:
        """Return another matcher that has come the same way."""
        other = Walk(self._grammar, self._vocabulary, self._tokenizer)
        require(all(other.accept(token) for token in self.path), f"a second matcher does not follow {self.text!r}")
        return other

    def stroll(self, rng: random.Random, steps: int) -> Iterator[int]:
        """Take random steps; yield before each how many were taken."""
        for step in range(steps):
            yield step
            tokens = self.onward()
            if not tokens:
                return
            token = rng.choice(tokens)
            require(self.accept(token), f"after {self.text!r} the mask allows token {token}, accept refuses it")


def samples_of(subject: Subject) -> list[GrammarSample]:
    """Return the plugin's samples, and the kit's for the kinds that it has none of.

    Raises:
        Unavailable: There is none at all.
    """
    own = subject.samples(GrammarSample)
    kinds = subject.spec(StructuredOutputSpec).grammars
    covered = {sample.kind for sample in own}
    found = own + [one for kind in sorted(kinds - covered) for one in STANDARD.get(kind, ())]
    if not found:
        subject.need_samples(GrammarSample)
        raise Unavailable("none of its samples is of a kind that it declares")
    return found
