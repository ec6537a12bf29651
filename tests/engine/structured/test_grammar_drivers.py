"""Both drivers, beyond what the conformance kit asks: tokenizers of other kinds, widths, special tokens, dialects."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

JSON = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}'


@pytest.mark.covers("GRAM-03")
@pytest.mark.parametrize("pattern", ["[ぁ-ん]{2}漢日", "日本[日本語]{3}", "[a-b]é{2}"])
def test_bytes_of_half_characters_stay_bytes(bench_of, sentencepiece, pattern):
    bench = bench_of(sentencepiece)
    for seed in range(6):
        text = bench.walk("regex", pattern, seed)
        assert text is not None and "\ufffd" not in text
        assert re.fullmatch(pattern, text.strip())


@pytest.mark.covers("GRAM-03")
def test_a_real_replacement_character_is_a_character(bench_of, sentencepiece):
    bench = bench_of(sentencepiece)
    matcher = bench.matcher("regex", "\ufffd")
    for byte in "\ufffd".encode():
        (token,) = bench.allowed(matcher)
        assert sentencepiece.piece(token) == bytes([byte])
        assert matcher.accept(token)
    assert matcher.is_complete()


def test_a_blank_inside_a_token_is_a_blank(bench_of, sentencepiece):
    bench = bench_of(sentencepiece)
    matcher = bench.matcher("choice", '["a the"]')
    for text in ("a", "▁the"):
        token = next(
            one
            for one in range(sentencepiece.vocab_size)
            if sentencepiece.piece(one) == text.replace("▁", " ").encode()
        )
        assert token in bench.allowed(matcher) and matcher.accept(token)
    assert matcher.is_complete()


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("change", [-40, -1, 0, 1, 31, 32, 100])
def test_masks_are_as_wide_as_the_logits(bench_of, kit_tokenizer, change):
    bench = bench_of(kit_tokenizer, kit_tokenizer.vocab_size + change)
    for kind, value in (("json_schema", JSON), ("json_object", ""), ("regex", "(.|\\n)*")):
        matcher = bench.matcher(kind, value)
        allowed = bench.allowed(matcher)
        assert allowed and max(allowed) < kit_tokenizer.vocab_size
        assert matcher.accept(next(token for token in allowed if token not in kit_tokenizer.eos_ids))


@pytest.mark.covers("GRAM-01")
def test_added_tokens_beyond_the_model_s_vocabulary_are_legal(bench_of, sentencepiece):
    (note,) = sentencepiece.encode("<note>", add_special_tokens=False)[-1:]
    bench = bench_of(sentencepiece, note + 1)
    assert bench.vocab_size == sentencepiece.vocab_size
    assert note in bench.allowed(bench.matcher("choice", '["<note>"]'))
    bench = bench_of(sentencepiece, note - 1)  # the tokenizer has more than the model says
    matcher = bench.matcher("choice", '["<note>"]')
    assert note not in bench.allowed(matcher) and bench.allowed(matcher)
    assert matcher.accept(note) and matcher.is_complete()


@pytest.mark.covers("GRAM-03")
def test_a_token_that_is_not_allowed_is_refused_without_an_exception(bench):
    matcher = bench.matcher("regex", "[0-9]{2}")
    (letter,) = bench.tokenizer.encode("x", add_special_tokens=False)
    (digit,) = bench.tokenizer.encode("7", add_special_tokens=False)
    for token in (letter, bench.tokenizer.eos_ids[0], bench.tokenizer.vocab_size + 5):
        assert matcher.accept(token) is False
    assert matcher.accept(digit) and matcher.accept(digit) and matcher.is_complete()
    assert matcher.accept(digit) is False


@pytest.mark.parametrize(
    ("value", "sentences", "others"),
    [
        ('root ::= "a" | "b" root', ("a", "bba"), ("b", "", "ab")),
        ('root ::= [a-c]+ ("-" [0-9])?', ("abc", "a-1"), ("-1", "a-", "d")),
        ('start: "a" | "b" start', ("a", "bba"), ("b", "", "ab")),
        ('start: WORD ("," WORD)*\nWORD: /[a-z]+/', ("ab,c", "x"), (",", "ab,", "A")),
    ],
    ids=["EBNF recursion", "EBNF classes", "Lark recursion", "Lark terminals"],
)
@pytest.mark.covers("GRAM-01")
def test_grammars_in_both_dialects(bench, value, sentences, others):
    assert all(bench.takes("grammar", value, text) for text in sentences)
    assert not any(bench.takes("grammar", value, text) for text in others)


@pytest.mark.parametrize(("style", "spaced"), [("any", True), ("none", False)])
@pytest.mark.covers("GRAM-01")
def test_white_space_between_the_parts_of_json(bench, style, spaced):
    schema = json.dumps({**json.loads(JSON), "x-whitespace": style})
    assert bench.takes("json_schema", schema, '{"a": 1}') is spaced or style == "none"
    assert bench.takes("json_schema", schema, '{ "a" :\n1 }') is spaced
    value = json.dumps({"x-whitespace": style})
    assert bench.takes("json_object", value, '{ "a":\n[1, 2]}') is spaced


def _tag(**form):
    return json.dumps({"type": "structural_tag", "format": form})


CALL = {
    "type": "tag",
    "begin": '<call>{"name": "f", "arguments": ',
    "content": {"type": "json_schema", "json_schema": json.loads(JSON)},
    "end": "}",
}


@pytest.mark.parametrize(
    "form",
    [
        {
            "type": "triggered_tags",
            "triggers": ["<call>"],
            "tags": [CALL],
            "at_least_one": True,
            "stop_after_first": True,
        },
        {"type": "tags_with_separator", "tags": [CALL], "separator": "\n", "at_least_one": True},
        CALL,
    ],
    ids=["triggered", "separated", "alone"],
)
@pytest.mark.covers("GRAM-01")
def test_a_special_token_that_a_tag_writes_is_the_token(bench_of, sentencepiece, form):
    bench = bench_of(sentencepiece)
    special = next(token for token in sentencepiece.special_ids if sentencepiece.token(token) == "<call>")
    matcher = bench.matcher("structural_tag", _tag(**form))
    assert special in bench.allowed(matcher) and matcher.accept(special)
    for byte in b'{"name": "f", "arguments": {"a":1}}':
        token = next(t for t in bench.allowed(matcher) if sentencepiece.piece(t) == bytes([byte]))
        assert matcher.accept(token)
    assert matcher.is_complete()


@pytest.mark.covers("GRAM-01")
def test_text_around_calls_and_several_calls(bench):
    call = {**CALL, "begin": "<f>", "end": "</f>"}
    value = _tag(type="triggered_tags", triggers=["<f>"], tags=[call])
    for text in ("", "plain", 'first <f>{"a": 1}</f>, then <f>{"a": 2}</f>.'):
        assert bench.takes("structural_tag", value, text), text
    for text in ("<f>", '<f>{"a": "x"}</f>', '<f>{"a": 1}', '<f>{"a": 1}</f><f>'):
        assert not bench.takes("structural_tag", value, text), text


def test_an_end_that_any_text_comes_before(bench):
    form = {"type": "tag", "begin": "<t>", "content": {"type": "any_text"}, "end": "</t>"}
    rest = {"type": "regex", "pattern": "[0-9]+"}
    value = _tag(type="sequence", elements=[form, rest])
    assert bench.takes("structural_tag", value, "<t>anything < at all</t>42")
    assert not bench.takes("structural_tag", value, "<t>anything</t>x")
    assert not bench.takes("structural_tag", value, "<t>anything42")


@pytest.mark.parametrize("kind", ["json_schema", "json_object", "regex", "choice", "grammar", "structural_tag"])
def test_values_that_are_no_grammar_say_why(bench, kind):
    for value in ("{", "((", "[", '{"type": "structural_tag", "format": {"type": "x"}}'):
        if (kind, value) in (("regex", '{"type": "structural_tag", "format": {"type": "x"}}'), ("regex", "{")):
            continue  # texts that a lenient reader of patterns takes
        with pytest.raises(ValueError, match=r"\w") as caught:
            bench.backend.compile(kind, value)
        assert len(str(caught.value)) < 600 and "/project/" not in str(caught.value)


def test_masks_of_rows_of_one_array_do_not_touch_each_other(bench):
    matcher = bench.matcher("regex", "[0-9]+")
    masks = np.zeros((3, -(-bench.vocab_size // 32)), np.int32)
    matcher.fill(masks[1])
    assert not masks[0].any() and not masks[2].any() and masks[1].any()


ESCAPED = [
    (r'root ::= [\u00e0-\u00ff]+ "\u2603"', "éà☃", "e☃"),
    (r'root ::= "\U0001F600" [\U0001F600-\U0001F610]', "😀😁", "😀a"),
    (r'root ::= "\u0041" [\u0061\u005D] "\u0022"', 'A]"', "Ab"),
    (r"root ::= [^\u0000-\u001f\u0085\u2028]+", "a b", "a\nb"),
    (r'root ::= "\\u0041"', r"\u0041", "A"),
]


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize(("grammar", "sentence", "other"), ESCAPED, ids=lambda value: ascii(value)[:24])
def test_characters_of_gbnf_may_be_escaped(bench, grammar, sentence, other):
    assert bench.takes("grammar", grammar, sentence) and not bench.takes("grammar", grammar, other)
