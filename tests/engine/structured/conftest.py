"""The structured-output drivers of this repository, and walks through their grammars."""

from __future__ import annotations

import random
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from core.api import StructuredContext
from core_testing.tinymodels import tiny_llama, tiny_tokenizer
from core_tokenizers import tokenizer_from_directory

DRIVERS = ("llguidance", "xgrammar")

NAMES = st.sampled_from(["a", "b", "name", "x y", "é"])
LEAVES = st.one_of(
    st.builds(
        lambda low, extra: {"type": "integer", "minimum": low, "maximum": low + extra},
        st.integers(-20, 20),
        st.integers(0, 200),
    ),
    st.builds(
        lambda least, more: {"type": "string", "minLength": least, "maxLength": least + more},
        st.integers(0, 3),
        st.integers(0, 4),
    ),
    st.sampled_from(
        [
            {"type": "boolean"},
            {"type": "null"},
            {"type": "number", "minimum": 0, "maximum": 1},
            {"type": "string", "pattern": "^[a-c]{1,3}$"},
            {"type": "string", "format": "date"},
            {"type": ["integer", "null"]},
            {"type": "integer", "multipleOf": 7},
            {"enum": [1, "two", None, [3]]},
            {"type": "string", "enum": ["x", 5, "y"]},
            {"const": {"k": [1, 2]}},
        ]
    ),
)


def _object(properties, required, closed):
    schema = {"type": "object", "properties": properties, "required": sorted(set(required) & set(properties))}
    return {**schema, "additionalProperties": False} if closed else schema


def _wider(inner):
    return st.one_of(
        st.builds(
            lambda one, least, more: {"type": "array", "items": one, "minItems": least, "maxItems": least + more},
            inner,
            st.integers(0, 2),
            st.integers(0, 2),
        ),
        st.builds(_object, st.dictionaries(NAMES, inner, max_size=3), st.lists(NAMES), st.booleans()),
        st.builds(lambda *parts: {"anyOf": list(parts)}, inner, inner),
        st.builds(
            lambda *parts: {"type": "array", "prefixItems": list(parts), "items": False, "minItems": len(parts)},
            inner,
            inner,
        ),
    )


SCHEMAS = st.recursive(LEAVES, _wider, max_leaves=6)


def backend_class(name):
    (entry,) = entry_points(group="core.structured_output", name=name)
    module, _, attribute = entry.load().impl.partition(":")
    return getattr(__import__(module, fromlist=[attribute]), attribute)


class Bench:
    """One driver with one tokenizer."""

    def __init__(self, name, tokenizer, vocab_size=None):
        self.name, self.tokenizer = name, tokenizer
        self.vocab_size = tokenizer.vocab_size if vocab_size is None else vocab_size
        self.backend = backend_class(name)(StructuredContext(self.vocab_size, lambda: tokenizer))

    def matcher(self, kind, value):
        return self.backend.compile(kind, value).matcher()

    def allowed(self, matcher):
        mask = np.zeros(-(-self.vocab_size // 32), np.int32)
        matcher.fill(mask)
        return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[: self.vocab_size]).tolist()

    def takes(self, kind, value, text):
        """Whether a text, however the tokenizer cuts it, is a sentence of a grammar."""
        matcher = self.matcher(kind, value)
        for token in self.tokenizer.encode(text, add_special_tokens=False):
            if token not in self.allowed(matcher):
                return False
            assert matcher.accept(token)
        return matcher.is_complete()

    def walk(self, kind, value, seed, steps=120, ends='"}]'):
        """Return a random sentence; None if it did not come to its end."""
        rng, matcher, ids = random.Random(seed), self.matcher(kind, value), []
        closing = {token for text in ends for token in self.tokenizer.encode(text, add_special_tokens=False)}
        for step in range(steps):
            allowed = self.allowed(matcher)
            onward = [token for token in allowed if token not in self.tokenizer.eos_ids]
            if matcher.is_complete() and (not onward or rng.random() < 0.5 or step > steps // 2):
                return self.tokenizer.decode(ids, skip_special_tokens=False)
            assert onward, f"nothing may follow {self.tokenizer.decode(ids)!r}"
            near = [token for token in onward if token in closing]
            ids.append(rng.choice(near if near and rng.random() < 0.4 else onward))
            assert matcher.accept(ids[-1])
        return None


@pytest.fixture(scope="session")
def kit_tokenizer(tmp_path_factory):
    return tokenizer_from_directory(tiny_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="session")
def sentencepiece(tmp_path_factory):
    """A tokenizer of the sentencepiece kind: texts with `▁`, and bytes for what it does not know."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    words = ["▁", "▁the", "a", "b", "1", "2", "日", "本", "日本", '"', "{", "}", ":", "e", "t", "h"]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, [("日", "本")], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<unk>", "<s>", "</s>", "<call>")])
    tokenizer.add_tokens([AddedToken("<note>", special=False, normalized=False)])
    folder = tmp_path_factory.mktemp("sentencepiece")
    tokenizer.save(str(folder / "tokenizer.json"))
    Path(folder / "tokenizer_config.json").write_text('{"eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"}')
    return tokenizer_from_directory(folder)


@pytest.fixture(params=DRIVERS)
def driver(request):
    return request.param


@pytest.fixture
def bench(driver, kit_tokenizer):
    return Bench(driver, kit_tokenizer)


@pytest.fixture
def bench_of(driver):
    return lambda tokenizer, vocab_size=None: Bench(driver, tokenizer, vocab_size)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return str(tiny_llama(tmp_path_factory.mktemp("model") / "llama"))


@pytest.fixture(scope="session")
def schemas():
    """A strategy for JSON schemas."""
    return SCHEMAS
