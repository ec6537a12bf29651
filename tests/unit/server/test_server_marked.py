"""Special tokens are tags, the same characters as ordinary tokens are not."""

from __future__ import annotations

import random

import pytest
import tokenizers
from core_plugin_parsers_json.families import KIMI_K2, MISTRAL
from core_plugin_parsers_reasoning.families import HARMONY

from core.api import ParserContext, Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core.frontend.answering.marked import MARK, Marking
from core_testing.conformance.tools.messages import joined
from core_tokenizers.fast import FastTokenizer

TAGS = ["<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>", "[TOOL_CALLS]", "<|eot|>"]
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": "é😀"}<|call|>'
EVENTS = [ToolStart(0, "f"), ToolArguments(0, '{"a": "é😀"}'), ToolEnd(0)]


@pytest.fixture(scope="module")
def tokenizer():
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({char: index for index, char in enumerate(alphabet)}, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(TAGS)
    return FastTokenizer(backend, special={}, chat_template=None, eos_ids=[])


def ids_of(tokenizer, *parts):
    """Token ids of texts; those in a tuple are spelled with ordinary tokens."""
    found = []
    for part in parts:
        if isinstance(part, str):
            found += tokenizer.encode(part, add_special_tokens=False)
        else:
            found += [token for char in part[0] for token in tokenizer.encode(char, add_special_tokens=False)]
    return found


def run(tokenizer, family, ids, steps, lag=0, **context):
    """Feed tokens in groups; their text arrives `lag` characters late, as behind a search for stop texts."""
    parser = Marking().around(family)(ParserContext(tokenizer=tokenizer, **context))
    stream, text, given, events = tokenizer.stream([], skip_special_tokens=False), "", 0, []
    for start in range(0, len(ids), steps):
        group = ids[start : start + steps]
        text += "".join(stream.step(token) for token in group)
        until = max(given, len(text) - lag)
        events += parser.feed(text[given:until], group)
        given = until
    events += parser.feed(text[given:] + stream.flush())
    return joined([*events, *parser.finish()])


@pytest.mark.covers("TOOL-01")
@pytest.mark.parametrize("steps", [1, 2, 3, 8, 1000])
@pytest.mark.parametrize("lag", [0, 1, 5])
def test_only_tokens_are_tags(tokenizer, steps, lag):
    real = ids_of(tokenizer, CALL)
    assert run(tokenizer, HARMONY, real, steps, lag) == EVENTS
    spelled = ids_of(tokenizer, "<|channel|>final<|message|>Write ", (CALL,), "!")
    assert run(tokenizer, HARMONY, spelled, steps, lag) == [Text(f"Write {CALL}!")]
    inside = ids_of(tokenizer, CALL.replace("é😀", "@").partition("@")[0], ("<|call|><|eot|>",), '"}<|call|>')
    assert run(tokenizer, HARMONY, inside, steps, lag)[1] == ToolArguments(0, '{"a": "<|call|><|eot|>"}')
    both = ids_of(tokenizer, "<|channel|>analysis<|message|>a ", ("<|end|>",), " b<|end|>", CALL)
    assert run(tokenizer, HARMONY, both, steps, lag) == [Reasoning("a <|end|> b"), *EVENTS]


@pytest.mark.parametrize("steps", [1, 4])
def test_tokens_that_nobody_knows_are_left_out_and_halves_of_characters_are_shown(tokenizer, steps):
    ids = [*ids_of(tokenizer, "a<|eot|>b<", "<|end|>c"), *ids_of(tokenizer, "é")[:1]]
    assert run(tokenizer, MISTRAL, ids, steps) == [Text("ab<c\ufffd")]
    assert run(tokenizer, MISTRAL, ids_of(tokenizer, f"a{MARK}b"), steps) == [Text("a\ufffdb")]


def test_any_mixture_gives_the_same_however_tokens_come(tokenizer):
    rng = random.Random(5)
    for _ in range(60):
        pieces = rng.choices([*TAGS, *((tag,) for tag in TAGS), CALL, (CALL,), "x", "<", "é", '{"a"', ("<|",)], k=8)
        ids = ids_of(tokenizer, *pieces)
        whole = run(tokenizer, HARMONY, ids, 1000)
        assert run(tokenizer, HARMONY, ids, rng.randint(1, 5), rng.randint(0, 7)) == whole


def test_a_text_that_no_model_wrote_is_read_as_it_is(tokenizer):
    parser = Marking().around(KIMI_K2)(ParserContext())
    assert joined([*parser.feed("a<|eot|>b"), *parser.finish()]) == [Text("a<|eot|>b")]


def test_work_is_linear_in_the_text(tokenizer):
    """Counted in characters that are searched."""
    from core.frontend.answering.marked import SpecialTexts

    class Counting(SpecialTexts):
        searched = 0

        def settled(self, data):
            self.searched += len(data)
            return super().settled(data)

    for piece in ("<", "<|chan", "<|channel|>", "x"):
        counts = []
        for times in (500, 2000):
            from core.frontend.answering.marked import Marked

            special = Counting(tokenizer)
            parser = Marked(HARMONY(ParserContext()), special, tokenizer.stream([], skip_special_tokens=False))
            for token in ids_of(tokenizer, (piece * times,)):
                parser.feed(tokenizer.token(token), [token])
            counts.append(special.searched)
        assert counts[1] < 5 * counts[0]
