"""Tokenizers built from GGUF vocabularies, against Hugging Face's."""

import json
import random
import struct
import time

import gguf
import pytest
from core_plugin_gguf.header import Header
from core_plugin_gguf.pretokenizers import LLAMA3, NAMES, QWEN2, splitter
from core_plugin_gguf.reader import GGUFReader, _named_templates
from core_plugin_gguf.vocabulary import Vocabulary, build_backend
from gguf import TokenType
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from core.api.errors import CheckpointError

READER = GGUFReader()

PLAIN_TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  leading and trailing  ",
    "tabs\tand\nnewlines\r\n\r\n   mixed \n ",
    "def f(x):\n    return {'a': [x, -x]}  # comment\n",
    "I'm sure you'll say they've DON'T know'd it's",
    "naïve café Ünïcödé — “quotes” …",
    "日本語のテキスト と 한국어 и русский العربية",
    "emoji 😀👍🏽 👨‍👩‍👧‍👦 flags 🇩🇪",
    "e\u0301 combining, \u00a0nbsp, \u200bzero width, \ufeffbom",
    "https://example.org/a?b=c&d=%20e#f",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "half special <|im_sta and <|endoftext|>inside<|endoftext|><|im_end|>",
    "\x00\x01\x7f control",
    "a" * 300,
]
DIGIT_TEXTS = ["12345", "3.14159 and 1,000,000", "x1y2 2024-11-21", "٣ ४ Ⅷ ² ½", "a1 b22 c333 "]


@pytest.fixture(scope="module")
def demo_backend(demo_file):
    return build_backend(Vocabulary.of(Header(demo_file)))


def random_texts(count):
    rng = random.Random(0)
    letters = "abc XYZ.,'\n\t-_é日😀\u0301\u00a0"
    return ["".join(rng.choices(letters, k=rng.randrange(1, 60))) for _ in range(count)]


@pytest.mark.covers("QUANT-12")
def test_demo_tokenizer_equals_transformers(demo_backend, reference_tokenizer):
    for text in PLAIN_TEXTS + random_texts(300):
        expected = reference_tokenizer(text, add_special_tokens=True)["input_ids"]
        assert demo_backend.encode(text).ids == expected, text
        assert demo_backend.decode(expected, skip_special_tokens=False) == reference_tokenizer.decode(expected)


def test_demo_tokenizer_splits_digits(demo_backend, reference_tokenizer):
    """The file's pre-tokenizer `smollm` sets every digit apart, as the model was trained.

    transformers does not know the name and merges digits; its tokenizer, given that split, agrees.
    """
    gpt2 = reference_tokenizer.backend_tokenizer.pre_tokenizer
    digits = pre_tokenizers.Digits(individual_digits=True)
    reference = Tokenizer.from_str(reference_tokenizer.backend_tokenizer.to_str())
    reference.pre_tokenizer = pre_tokenizers.Sequence([digits, gpt2])
    for text in DIGIT_TEXTS + PLAIN_TEXTS:
        assert demo_backend.encode(text).ids == reference.encode(text).ids, text
    assert demo_backend.encode("12345").tokens == list("12345")


def test_templates_for_special_purposes_are_read_by_name(tmp_path):
    tokens, types = ["<s>", "</s>", "a", "b", "ab"], [TokenType.CONTROL] * 2 + [TokenType.NORMAL] * 3
    named = [
        {"name": "default", "template": "D"},
        {"name": "tool_use", "template": "T"},
        {"name": "a-b", "template": "B"},
    ]
    path = write(
        tmp_path / "named.gguf", model="gpt2", tokens=tokens, types=types, merges=["a b"], pre="gpt-2",
        bos_token_id=0, eos_token_id=1, chat_template=named,
    )  # fmt: skip
    tokenizer = READER.tokenizer(path)
    assert tokenizer.chat_template == "D"
    assert tokenizer.chat_templates == {"tool_use": "T", "a_b": "B"}
    writer = gguf.GGUFWriter(tmp_path / "unlisted.gguf", "llama")
    writer.add_string("tokenizer.chat_template.rag", "R")
    writer.add_array("tokenizer.chat_templates", ["gone"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert _named_templates(Header(tmp_path / "unlisted.gguf")) == {"rag": "R"}


def test_demo_tokenizer_through_the_reader(demo_file):
    tokenizer = READER.tokenizer(demo_file)
    assert tokenizer.vocab_size == 49152
    assert tokenizer.eos_ids == (2,)
    assert {0, 1, 2} <= tokenizer.special_ids
    assert "<|im_start|>" in tokenizer.chat_template
    assert tokenizer.special_tokens()["eos_token"] == "<|im_end|>"
    ids = tokenizer.encode("<|im_start|>user\nIs 12 even?<|im_end|>")
    assert (ids[0], ids[-1]) == (1, 2)
    assert tokenizer.decode(ids) == "user\nIs 12 even?"


def write(path, *, model, tokens, types=None, scores=None, merges=None, pre=None, cls=None, **flags):
    """Write a file that holds a vocabulary only; `flags` name methods `add_<flag>` of the writer, `cls` an id."""
    writer = gguf.GGUFWriter(path, "llama")
    if cls is not None:
        writer.add_uint32("tokenizer.ggml.cls_token_id", cls)
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    for value, add in [
        (types, writer.add_token_types),
        (scores, writer.add_token_scores),
        (merges, writer.add_token_merges),
        (pre, writer.add_tokenizer_pre),
        *((value, getattr(writer, f"add_{flag}")) for flag, value in flags.items()),
    ]:
        if value is not None:
            add(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog sleeps.",
    "Numbers 1 22 333 4444 55555 are split differently. Don't they'll we've I'M.",
    "    indented = code(with, args)\n\treturn 'text'\n\n",
    "Ünïcödé é 日本語 😀 e\u0301",
] * 4


@pytest.fixture(scope="module")
def trained():
    """`trained(pre)`: a byte-level tokenizer of Hugging Face's, trained here, split the way `pre` says."""

    def train(pre):
        tokenizer = Tokenizer(models.BPE())
        regexes = {"llama-bpe": LLAMA3, "qwen2": QWEN2}
        if pre in regexes:
            split = pre_tokenizers.Split(Regex(regexes[pre]), "isolated")
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
        else:
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        if pre == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=500,
            special_tokens=["<s>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(CORPUS, trainer)
        return tokenizer

    return train


def parts_of(tokenizer):
    """Return tokens in the order of their ids, and merges as GGUF spells them."""
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    return tokens, [" ".join(pair) for pair in model["merges"]]


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize("pre", ["default", "gpt-2", "llama-bpe", "qwen2"])
def test_byte_level_vocabularies(trained, tmp_path, pre):
    reference = trained(pre)
    tokens, merges = parts_of(reference)
    types = [TokenType.CONTROL] * 2 + [TokenType.NORMAL] * (len(tokens) - 2)
    path = write(
        tmp_path / "v.gguf", model="gpt2", tokens=tokens, types=types, merges=merges, pre=pre,
        bos_token_id=0, eos_token_id=1, add_bos_token=False,
    )  # fmt: skip
    backend = build_backend(Vocabulary.of(Header(path)))
    for text in PLAIN_TEXTS + DIGIT_TEXTS + CORPUS:
        assert backend.encode(text).ids == reference.encode(text).ids, text


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("default", ["Ġdon", "'t", "Ġ12345", "ĠX", "!!"]),
        ("smollm", ["Ġdon", "'t", "Ġ", "1", "2", "3", "4", "5", "ĠX", "!!"]),
        ("llama-bpe", ["Ġdon", "'t", "Ġ", "123", "45", "ĠX", "!!"]),
        ("qwen2", ["Ġdon", "'t", "Ġ", "1", "2", "3", "4", "5", "ĠX", "!!"]),
        ("tekken", ["Ġdon", "'t", "Ġ", "1", "2", "3", "4", "5", "ĠX", "!!"]),
        ("gpt-4o", ["Ġdon't", "Ġ", "123", "45", "ĠX", "!!"]),
        ("glm4", ["Ġdon", "'t", "Ġ", "123", "45", "ĠX", "!!"]),
        ("bailingmoe", ["Ġdon", "'t", "Ġ", "1", "2", "3", "4", "5", "ĠX", "!!"]),
        ("deepseek-llm", ["Ġdon", "'", "t", "Ġ", "1", "2", "3", "4", "5", "ĠX", "!!"]),
        ("deepseek-v3", ["Ġdon", "'t", "Ġ", "123", "45", "ĠX", "!!"]),
        ("falcon", ["Ġdon", "'", "t", "Ġ", "123", "45", "ĠX", "!!"]),
        ("falcon-h1", ["Ġdon", "'t", "Ġ", "123", "45", "ĠX", "!!"]),
        ("qwen35", ["Ġdon", "'t", "Ġ", "1", "2", "3", "4", "5", "ĠX", "!!"]),
        ("kimi-k2", ["Ġdon't", "Ġ", "123", "45", "ĠX", "!!"]),
    ],
)
def test_splits(pre, pieces):
    assert [piece for piece, _ in splitter(pre).pre_tokenize_str(" don't 12345 X!!")] == pieces


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("deepseek-llm", ["x", "\n", "\n", "日本ი", " ", "ბ", "foo", "_", "bar"]),
        ("deepseek-v3", ["x", "\n\n", "日本", "ი", " ბfoo", "_bar"]),
        ("kimi-k2", ["x", "\n\n", "日本", "ი", " ბfoo", "_bar"]),
    ],
)
def test_one_split_after_another(pre, pieces):
    """Each takes what those before have left; Georgian had no small letters when the first split was made."""
    text = "x\n\n日本ი ბfoo_bar"
    found = [text[first:last] for _, (first, last) in splitter(pre).pre_tokenize_str(text)]
    assert found == pieces


KIMI_TEXTS = [
    "日本語text 中文ABCdef, don't CAN'T 1234567 한국어\n\n  x",
    "\u4e00\u9fa5é中E\u0301b   y\r\n!?\n's 't",
    *CORPUS,
    *PLAIN_TEXTS[:-6],
]


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize("merged", [True, False])
def test_a_ranked_vocabulary_encodes_as_tiktoken_does(trained, tmp_path, merged):
    """Kimi's: files have its ranks as ids, and merges or none; runs of Han characters are pieces of their own."""
    tiktoken = pytest.importorskip("tiktoken")
    from core_tokenizers.pieces import byte_of_char

    tokens, merges = parts_of(trained("default"))
    letters = byte_of_char()
    ranks = {bytes(letters[char] for char in token): rank for rank, token in enumerate(tokens[2:])}
    ends = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
    parts = [r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{ends}"]
    parts += [rf"[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{ends}", r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*"]
    parts += [r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"]
    special = {"[BOS]": len(ranks), "[EOS]": len(ranks) + 1}
    reference = tiktoken.Encoding("kimi", pat_str="|".join(parts), mergeable_ranks=ranks, special_tokens=special)
    types = [TokenType.NORMAL] * len(ranks) + [TokenType.CONTROL] * 2
    path = write(
        tmp_path / "v.gguf", model="gpt2", tokens=[*tokens[2:], *special], types=types,
        merges=merges if merged else None, pre="kimi-k2", bos_token_id=len(ranks), eos_token_id=len(ranks) + 1,
    )  # fmt: skip
    backend = build_backend(Vocabulary.of(Header(path)))
    for text in [*KIMI_TEXTS, *random_texts(200), "a[EOS]日本"]:
        expected = reference.encode(text, allowed_special="all")
        assert backend.encode(text).ids == expected, text
        assert backend.decode(expected, skip_special_tokens=False) == text


PIECES = {
    "a": -3.0, "b": -3.25, " ": -2.5, "日": -4.0, "ab": -5.5, "ba": -6.9, "aba": -8.10004, "b ": -5.6, " a": -5.25,
    "日本": -7.5, "本語": -9.0, "\n": -4.5, "cd": -6.0, "bcd": -9.2, **dict.fromkeys("[PAD1]<0x4>", -9.5),
}  # fmt: skip
"""Of some characters there is no piece of their own."""


def plamo_file(tmp_path, **flags):
    named = ["<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
    types += [TokenType.NORMAL] * len(PIECES) + [TokenType.UNUSED]
    scores = [0.0] * 259 + list(PIECES.values()) + [-1000.0]
    tokens = [*named, *bytes_, *PIECES, "[PAD1]"]
    ids = {"bos_token_id": 1, "eos_token_id": 2, "unk_token_id": 0}
    return write(tmp_path / "plamo.gguf", model="plamo2", tokens=tokens, types=types, scores=scores, **ids, **flags)


def likeliest(text):
    """PLaMo's rule, spelled out: of all ways to cut a text, that with the greatest sum of scores."""
    best = [(0, [])] * (len(text) + 1)
    for at in range(len(text) - 1, -1, -1):
        ways = [(-(10**7), [f"<0x{byte:02X}>" for byte in text[at].encode()], at + 1)]
        ways += [
            (round(score * 10**4), [piece], at + len(piece))
            for piece, score in PIECES.items()
            if text.startswith(piece, at)
        ]
        best[at] = max(
            ((score + best[end][0], pieces + best[end][1]) for score, pieces, end in ways), key=lambda x: x[0]
        )
    return best[0][1]


@pytest.mark.covers("QUANT-12")
def test_pieces_of_the_greatest_sum_of_scores(tmp_path):
    backend = build_backend(Vocabulary.of(Header(plamo_file(tmp_path))))
    rng = random.Random(3)
    texts = ["ab ba", "日本語", "abcd", "[PAD1]", "<0x41>", "x😀y", "c", "\ufeffab", ""]
    texts += ["".join(rng.choices("ab cd日本語é\n", k=rng.randrange(1, 40))) for _ in range(300)]
    for text in texts:
        encoding = backend.encode(text)
        assert encoding.tokens == likeliest(text), text
        assert backend.decode(encoding.ids) == text
    assert backend.encode("a<|plamo:eos|>b").tokens == ["a", "<|plamo:eos|>", "b"]
    begun = build_backend(Vocabulary.of(Header(plamo_file(tmp_path, add_bos_token=True))))
    assert begun.encode("a").tokens == ["<|plamo:bos|>", "a"]


def character_table():
    """SentencePiece's table for a tab, which becomes a space, and for a sharp s: a double array and its texts."""
    units, texts = [0] * 768, b" \0ss\0"

    def unit(label, offset, *, last):
        return offset << 10 | last << 8 | label

    units[0] = unit(0, 256, last=False)
    units[256 ^ 0x09] = unit(0x09, 256 ^ 0x09 ^ 2, last=True)
    units[256 ^ 0xC3] = unit(0xC3, 256 ^ 0xC3 ^ 512, last=False)
    units[512 ^ 0x9F] = unit(0x9F, 512 ^ 0x9F ^ 3, last=True)
    units[2], units[3] = 1 << 31, 1 << 31 | 2
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + texts


XLM = {
    "<s>": 0.0, "<pad>": 0.0, "</s>": 0.0, "<unk>": 0.0, "▁": -3.0, "a": -3.5, "b": -3.75, "s": -4.25, "▁a": -4.0,
    "ab": -5.5, "▁ab": -6.25, "ss": -5.75, "▁日本": -7.5, "日": -8.0, "<mask>": 0.0,
}  # fmt: skip


def xlm_file(tmp_path, **flags):
    types = [TokenType.CONTROL] * 3 + [TokenType.UNKNOWN] + [TokenType.NORMAL] * (len(XLM) - 5) + [TokenType.CONTROL]
    ids = {"bos_token_id": 0, "eos_token_id": 2, "unk_token_id": 3, "pad_token_id": 1}
    given = {"model": "t5", "tokens": list(XLM), "types": types, "scores": list(XLM.values()), **ids}
    return write(tmp_path / "xlm.gguf", **{**given, "add_bos_token": True, **flags})


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize("table", [True, False])
def test_pieces_of_xlm_roberta(table, tmp_path):
    transformers = pytest.importorskip("transformers")
    further = {"precompiled_charsmap": character_table()} if table else {}
    backend = build_backend(Vocabulary.of(Header(xlm_file(tmp_path, **further))))
    reference = transformers.XLMRobertaTokenizer(
        vocab=list(XLM.items()), _spm_precompiled_charsmap=character_table() if table else None
    )
    rng = random.Random(5)
    texts = ["ab ba", " a  b ", "aß\tss", "日本 a", "x", "", "a<mask>b"]
    texts += ["".join(rng.choices("ab sß日本é\t", k=rng.randrange(1, 40))) for _ in range(300)]
    for text in texts:
        assert backend.encode(text).ids == reference(text)["input_ids"], text
    pair = backend.encode("a", "b")
    assert pair.ids == reference("a", "b")["input_ids"] and not any(pair.type_ids)


def test_spaces_of_xlm_roberta_follow_the_file(tmp_path):
    flags = {"add_space_prefix": False, "add_eos_token": False}
    squeezed = build_backend(Vocabulary.of(Header(xlm_file(tmp_path, **flags))))
    assert squeezed.encode(" b  a ").tokens == ["<s>", "b", "▁a"]
    kept = build_backend(Vocabulary.of(Header(xlm_file(tmp_path, **flags, remove_extra_whitespaces=False))))
    assert kept.encode(" b  a").tokens == ["<s>", "▁", "b", "▁", "▁a"]


def test_ends_of_a_text_by_the_names_of_encoders(trained, tmp_path):
    """ModernBERT's split is GPT-2's, of composed characters; [CLS] and [SEP] stand where others have other tokens."""
    tokens, merges = parts_of(trained("default"))
    types = [TokenType.CONTROL] * 2 + [TokenType.NORMAL] * (len(tokens) - 2)
    path = write(
        tmp_path / "v.gguf", model="gpt2", tokens=tokens, types=types, merges=merges, pre="modern-bert",
        cls=0, sep_token_id=1, add_bos_token=True, add_eos_token=True,
    )  # fmt: skip
    backend = build_backend(Vocabulary.of(Header(path)))
    reference = trained("default")
    reference.normalizer = normalizers.NFC()
    for text in PLAIN_TEXTS + CORPUS:
        assert backend.encode(text).ids == [0, *reference.encode(text).ids, 1], text


def test_every_named_split_keeps_all_text():
    text = " don't 12345 X!!\n\n  e\u0301 日本"
    for name in NAMES:
        pieces = "".join(piece for piece, _ in splitter(name).pre_tokenize_str(text))
        assert decoders.ByteLevel().decode([pieces]) == text


SPM_NORMAL = {
    "▁": -1.0, "h": -2.0, "e": -3.0, "l": -4.0, "o": -5.0, "w": -6.0, "r": -7.0, "d": -8.0,
    "▁h": -9.0, "el": -10.0, "ll": -10.5, "▁hel": -11.0, "▁hello": -12.0, "lo": -13.0, "▁w": -14.0,
    "or": -15.0, "▁wor": -16.0, "ld": -17.0, "▁world": -18.0, "ello": -19.0,
}  # fmt: skip


def spm_file(tmp_path, **flags):
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *byte_tokens, *SPM_NORMAL, "<|user|>"]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
    types += [TokenType.NORMAL] * len(SPM_NORMAL) + [TokenType.USER_DEFINED]
    scores = [0.0] * 259 + list(SPM_NORMAL.values()) + [0.0]
    ids = {"bos_token_id": 1, "eos_token_id": 2, "unk_token_id": 0}
    return write(tmp_path / "spm.gguf", model="llama", tokens=tokens, types=types, scores=scores, **ids, **flags)


def sentencepiece(text):
    """SentencePiece's rule, spelled out: while it helps, join the best-scored neighbours, leftmost first."""
    pieces = list(text)
    while True:
        best = None
        for i in range(len(pieces) - 1):
            score = SPM_NORMAL.get(pieces[i] + pieces[i + 1])
            if score is not None and (best is None or score > best[0]):
                best = (score, i)
        if best is None:
            break
        pieces[best[1] : best[1] + 2] = [pieces[best[1]] + pieces[best[1] + 1]]
    result = []
    for piece in pieces:
        result += [piece] if piece in SPM_NORMAL else [f"<0x{byte:02X}>" for byte in piece.encode()]
    return result


@pytest.mark.covers("QUANT-12")
def test_sentencepiece_vocabulary(tmp_path):
    backend = build_backend(Vocabulary.of(Header(spm_file(tmp_path))))
    rng = random.Random(2)
    texts = ["hello world", "hello  hello", "held", "wórld 日 h\n", " hello"]
    texts += ["".join(rng.choices("helowrd é", k=25)) for _ in range(100)]
    for text in texts:
        encoding = backend.encode(text)
        assert encoding.tokens == ["<s>", *sentencepiece("▁" + text.replace(" ", "▁"))], text
        assert backend.decode(encoding.ids) == text
    assert backend.encode("hello", add_special_tokens=False).tokens == ["▁hello"]


def test_sentencepiece_tokens_that_match_as_a_whole(tmp_path):
    backend = build_backend(Vocabulary.of(Header(spm_file(tmp_path, add_bos_token=False, add_eos_token=True))))
    assert backend.encode("hello<|user|>hello</s>").tokens == ["▁hello", "<|user|>", "▁hello", "</s>", "</s>"]
    ids = backend.encode("hello<|user|>").ids
    assert backend.decode(ids, skip_special_tokens=True).endswith("<|user|>")


def test_sentencepiece_without_a_space_in_front(tmp_path):
    backend = build_backend(Vocabulary.of(Header(spm_file(tmp_path, add_space_prefix=False))))
    assert backend.encode("ello w").tokens == ["<s>", "ello", "▁w"]
    assert backend.decode(backend.encode(" hello").ids) == " hello"


def test_sentencepiece_equals_transformers_derivation(tmp_path):
    """Where transformers' own merges are unambiguous, on prompts that do not begin with a space."""
    transformers = pytest.importorskip("transformers")
    vocabulary = Vocabulary.of(Header(spm_file(tmp_path)))
    backend = build_backend(vocabulary)
    vocab = {token: number for number, token in enumerate(vocabulary.tokens)}
    merges = transformers.tokenization_utils_base.generate_merges(
        vocab, dict(zip(vocabulary.tokens, vocabulary.scores, strict=True))
    )
    reference = transformers.LlamaTokenizer(vocab=vocab, merges=merges, add_bos_token=True)
    for text in ["hello world", "world hello", "wrd ell old", "é日"]:
        assert backend.encode(text).ids == reference(text)["input_ids"]


def test_an_absurdly_long_piece_takes_no_time(tmp_path):
    tokens = ["<unk>", "▁", "a", "aa", "a" * 3_000_000]
    path = write(tmp_path / "long.gguf", model="llama", tokens=tokens, scores=[0.0, -1.0, -2.0, -3.0, -4.0])
    begun = time.process_time()
    assert build_backend(Vocabulary.of(Header(path))).encode("aaa", add_special_tokens=False).tokens == ["▁", "aa", "a"]
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "rwkv", "tokens": ["a"]}, "'rwkv'"),
        ({"model": "t5", "tokens": ["a"]}, "no token for what is unknown"),
        (
            {"model": "t5", "tokens": ["a"], "scores": [0.0], "unk_token_id": 0, "precompiled_charsmap": b"abc"},
            "table of characters",
        ),
        ({"model": "bert", "tokens": ["a"]}, "no tokens that begin and end a text"),
        ({"model": "gpt2", "tokens": ["a"], "pre": "martian", "merges": ["a a"]}, "'martian'"),
        ({"model": "gpt2", "tokens": ["a"]}, "no merges"),
        ({"model": "gpt2", "tokens": ["a", "b"], "merges": ["a b"]}, "'a b'"),
        ({"model": "gpt2", "tokens": ["a", "b"], "merges": ["a b c"]}, "'a b c'"),
        ({"model": "gpt2", "tokens": ["a", "b"], "types": [1], "merges": ["a b"]}, "1 token types"),
        ({"model": "llama", "tokens": ["a"]}, "neither scores nor merges"),
        ({"model": "plamo2", "tokens": ["a"], "types": [1]}, "no scores, no types"),
        ({"model": "plamo2", "tokens": ["a"], "types": [1], "scores": [float("inf")]}, "a score without end"),
    ],
)
def test_vocabularies_that_cannot_be_used(tmp_path, given, message):
    path = write(tmp_path / "bad.gguf", **given)
    with pytest.raises(CheckpointError, match=message) as caught:
        READER.tokenizer(path)
    assert caught.value.code == "CORE-M143"


def test_a_file_without_a_vocabulary(tiny):
    with pytest.raises(CheckpointError, match="no tokens"):
        READER.tokenizer(tiny().path)
