"""Each check of structured-output backends finds the one that is wrong in its way, and only that check does."""

from __future__ import annotations

import pytest

from core.api.grammars import MAX_GRAMMAR_CHARS
from core.api.structured import GRAMMAR_KINDS
from core_testing.conformance import HOSTILE, Level
from core_testing.conformance.tools.hostile_grammars import MOST_BYTES

MANIFEST = """
from core.api import StructuredOutputSpec

SPEC = StructuredOutputSpec(
    name="broken", impl="PKG.backend:Backend", api=1, summary="s", grammars=frozenset({kinds}), isolate={isolate}
)
"""

# Choices of plain letters; a matcher holds every prefix against every choice, which is slow and obviously right.
BACKEND = """
import json
import time

from jsonschema import Draft202012Validator

from core_testing.conformance.tools.grammar_samples import OBJECTS

TEXTS = sorted({text for sample in OBJECTS for text in (*sample.takes, *sample.refuses)})

def objects(schema):
    # The texts of the kit that a schema takes stand for all.
    {objects}
    if not set(schema) <= {"type", "properties", "required", "additionalProperties", "maxProperties"}:
        raise ValueError("plain objects only")
    return [text for text in TEXTS if Draft202012Validator(schema).is_valid(json.loads(text))]

class Backend:
    def __init__(self, ctx):
        self.ctx, self.compiled = ctx, []
        {init}

    def compile(self, kind, value):
        choices = json.loads(value)
        if kind == "json_schema":
            choices = objects(choices)
        {compile}
        if not isinstance(choices, list) or not choices or not all(isinstance(one, str) for one in choices):
            raise ValueError("a choice is a list of texts")
        self.compiled.append(value)
        return Grammar(choices, self.ctx.tokenizer(), self.ctx.vocab_size)

    def load(self, data):
        choices = json.loads(data)
        {load}
        return Grammar(choices, self.ctx.tokenizer(), self.ctx.vocab_size)

class Grammar:
    def __init__(self, choices, tokenizer, vocab_size):
        self.choices, self.eos_ids, self.vocab_size = choices, tokenizer.eos_ids, vocab_size
        special = tokenizer.special_ids | set(tokenizer.eos_ids)
        texts = {token: tokenizer.decode([token]) for token in range(tokenizer.vocab_size) if token not in special}
        self.texts = {token: text for token, text in texts.items() if text and "\\ufffd" not in text}
        self.special = sorted(tokenizer.special_ids - set(tokenizer.eos_ids))
        {grammar}

    def matcher(self):
        return Matcher(self)

    def dump(self):
        return json.dumps(self.choices).encode()

class Matcher:
    def __init__(self, grammar):
        self.grammar, self.path = grammar, []

    def text(self):
        return "".join(self.path)

    def fits(self, piece):
        text = self.text() + piece
        {fits}
        return any(choice.startswith(text) for choice in self.grammar.choices)

    def fill(self, mask):
        grammar, complete = self.grammar, self.is_complete()
        allowed = [token for token, text in grammar.texts.items() if self.fits(text)]
        {fill}
        words = mask.view("uint32")
        for token in [*allowed, *(grammar.eos_ids if complete else ())]:
            words[token // 32] |= 1 << token % 32

    def accept(self, token):
        piece = self.grammar.texts.get(token)
        {accept}
        if piece is None or not self.fits(piece):
            {refuse}
            return False
        self.path.append(piece)
        return True

    def rollback(self, count):
        {rollback}
        del self.path[len(self.path) - count :]

    def is_complete(self):
        text = self.text()
        {complete}
        return text in self.grammar.choices
"""

SAMPLES = """
from core_testing.conformance import GrammarSample

def samples():
    yield GrammarSample(
        "words", "choice", '["red", "green apple", "re"]', sentences=("red", "green apple", "re"),
        others=("r", "green", "redd", "", "blue"), bad=("red", "{}", "[]"),
    )
"""

SCHEMA_SAMPLES = (
    SAMPLES
    + """
    yield GrammarSample("no properties", "json_schema", '{"maxProperties": 0}', sentences=("{}",), others=("{",))
"""
)

PARTS = ("objects", "init", "compile", "grammar", "fits", "fill", "accept", "refuse", "rollback", "complete", "load")

CASES = {
    "grammar_kinds_are_known": {"kinds": '{"choice", "poem"}'},
    "sentences_are_accepted": {"fits": "if len(piece) > 1: return False"},
    "other_texts_are_refused": {"complete": "if text == 'green': return True"},
    "masks_and_accept_agree": {"refuse": "self.path.append(''); return True"},
    "masks_stay_in_the_vocabulary": {
        "fill": "allowed += grammar.special[:1]",
        "accept": "if token in self.grammar.special: piece = ''",
    },
    "the_end_is_allowed_when_complete": {"fill": "complete = complete and not allowed"},
    "rollback_takes_back": {"rollback": "count = min(count, 2)"},
    "matchers_share_nothing": {
        "compile": "if value in self.compiled: choices = [one for one in choices if one[:1] != 'g']"
    },
    "bad_grammars_are_value_errors": {"compile": "if isinstance(choices, dict): raise TypeError('a dict')"},
    "compiling_is_bounded": {"compile": "while len(value) > 40_000 and time.process_time() < 60: pass"},
    "isolated_grammars_travel": {"isolate": "True", "load": "choices = choices[1:]"},
    "tokenizer_waits_until_needed": {"init": "ctx.tokenizer()"},
}


@pytest.fixture
def backend(make_plugin):
    def make(kinds: str = '{"choice"}', samples: str = SAMPLES, isolate: str = "False", **given: str):
        source = BACKEND
        for key in PARTS:
            source = source.replace("{" + key + "}", given.get(key, "pass"))
        manifest = MANIFEST.replace("{kinds}", kinds).replace("{isolate}", isolate)
        modules = {"manifest": manifest, "backend": source, "conformance": samples}
        return make_plugin("core.structured_output", modules)

    return make


@pytest.mark.parametrize("isolate", ["False", "True"])
def test_a_sound_backend_passes(backend, isolate):
    report = backend(isolate=isolate).report("grammars", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize("check", CASES)
def test_grammars(backend, check, monkeypatch):
    if check == "compiling_is_bounded":
        monkeypatch.setattr("core_testing.conformance.areas.grammars.COMPILE_SECONDS", 2.0)
    assert set(backend(**CASES[check]).failing("grammars")) == {check}


SCHEMAS = {"kinds": '{"choice", "json_schema"}', "samples": SCHEMA_SAMPLES}


def test_a_sound_backend_of_schemas_passes(backend):
    assert backend(**SCHEMAS).failing("grammars") == {}


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ("schema.pop('additionalProperties', None)", "takes {"),
        ("schema = {**schema, 'additionalProperties': False}", "does not take {"),
        ("assert 'anyOf' not in schema", "AssertionError"),
        ("if 'properties' in schema: raise ValueError('no objects')", "refuses the schema"),
    ],
    ids=["open", "closed", "broken", "refusing"],
)
def test_objects_of_schemas(backend, objects, said):
    failing = backend(**SCHEMAS, objects=objects).failing("grammars")
    assert set(failing) == {"objects_are_as_open_as_schemas_say"} and said in str(failing)


def test_a_kind_without_texts_keeps_a_backend_at_l0(backend):
    report = backend('{"choice", "grammar"}').report("grammars")
    (missing,) = report.not_run
    assert (missing.checks, report.level) == (("every_kind_can_be_checked",), Level.L0)
    assert "no texts for grammar: add a GrammarSample" in missing.because


def test_what_the_kit_has_for_a_kind_is_used(backend):
    failing = backend('{"choice"}', samples="def samples(): return []\n", fits="if piece == ' ': return False")
    assert "green apple" in failing.failing("grammars")["sentences_are_accepted"]


def test_a_grammar_that_is_refused_is_named(backend):
    failing = backend(compile="if 'green' in value: raise ValueError('no colours')").failing("grammars")
    assert "it refuses the choice" in failing["sentences_are_accepted"] and "no colours" in str(failing)


HARD = "if len(value) > 40_000: "


@pytest.mark.parametrize(
    ("compile", "said"),
    [
        (HARD + "import os; os._exit(3)", "ended with status 3"),
        (HARD + "raise TypeError('too long')", "raises TypeError"),
        ("while len(value) > 40_000 and time.process_time() < 60: pass", "takes more than 2 s of processor time"),
        (HARD + "time.sleep(60)", "still busy after 2 s"),
        (HARD + "self.kept = bytearray(2**30)", ""),  # a MemoryError: refused
    ],
    ids=["dies", "raises", "computes", "sleeps", "takes memory"],
)
def test_a_compiler_that_a_hard_grammar_breaks_is_caught(backend, monkeypatch, compile, said):
    monkeypatch.setattr("core_testing.conformance.areas.grammars.COMPILE_SECONDS", 2.0)
    if "sleep" in compile:
        monkeypatch.setattr("core_testing.conformance.tools.compiling._PATIENCE", 1)
    report = backend(compile=compile).report(checks=("compiling_is_bounded",))
    assert [said in one.message for one in report.failures] == ([True] if said else [])


def test_memory_beyond_the_bound_is_not_given(backend):
    """It is refused the second time, behind a process that the first time ended."""
    ends = HARD + "\n            try: bytearray(2**30)\n            except MemoryError: import os; os._exit(9)"
    (failure,) = backend(compile=ends).report(checks=("compiling_is_bounded",)).failures
    assert "choice, many choices" in failure.message and "ended with status 9" in failure.message


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_grammars_are_small(kind):
    sizes = {name: len(value.encode()) for name, value in HOSTILE[kind].items()}
    assert {name: size for name, size in sizes.items() if size > MOST_BYTES} == {} and MOST_BYTES == MAX_GRAMMAR_CHARS


@pytest.mark.covers("GRAM-01")
def test_hostile_grammars_are_of_every_sort():
    assert set(HOSTILE) == set(GRAMMAR_KINDS)
    names = " ".join(name for grammars in HOSTILE.values() for name in grammars)
    for sort in (
        "exponential references",
        "huge alternation",
        "deep nesting",
        "big repeat",
        "flood",
        "long",
        "literals",
    ):
        assert sort in names
