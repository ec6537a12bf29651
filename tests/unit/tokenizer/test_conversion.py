"""Tokenizers of checkpoints that have no tokenizer.json: converted as their makers mean them, or refused in a line."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from core.api import CheckpointError
from core_tokenizers import missing_tokenizer, tokenizer_from_directory
from core_tokenizers.byte_merges import LLAMA3, QWEN2

sys.path.insert(0, str(Path(__file__).parent))
import vocabularies as made

TEXTS = [
    "the token readers hello",
    "  two  blanks ",
    "Grüße, 世界! \U0001f389\n\tinning 1234567",
    "",
    "I'm in the 3rd lane, it's <unk> x",
    "e\u0301 and \u00e9",
]


@pytest.fixture
def directory(tmp_path):
    """`directory(tokenizer_config, config)` writes these two and returns the path."""

    def write(settings=None, config=None):
        for name, content in (("tokenizer_config.json", settings), ("config.json", config)):
            if content is not None:
                (tmp_path / name).write_text(json.dumps(content))
        return tmp_path

    return write


def encoded(path, texts=TEXTS, **options):
    assert missing_tokenizer(path) == ""
    return tokenizer_from_directory(path).encode_batch(texts, **options)


# -- SentencePiece -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({"tokenizer_class": "LlamaTokenizer"}, None),
        ({"tokenizer_class": "BaichuanTokenizer", "auto_map": {"AutoTokenizer": ["a.B", None]}}, None),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, {"model_type": "mistral"}),
        (None, {"model_type": "internlm2"}),
        (None, {"tokenizer_class": "OrionTokenizer"}),
    ],
)
def test_pieces_are_joined_by_their_scores(directory, settings, config):
    path = directory(settings, config)
    pieces = made.llama_pieces()
    made.sentencepiece(path / "tokenizer.model", pieces)
    texts = [text for text in TEXTS if "<unk>" not in text]
    assert encoded(path, texts, add_special_tokens=False) == [made.joined(text, pieces) for text in texts]
    tokenizer = tokenizer_from_directory(path)
    assert tokenizer.encode("the") == [1, *made.joined("the", pieces)]
    assert tokenizer.decode(tokenizer.encode(TEXTS[2])) == TEXTS[2]
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.special_ids) == (1, (2,), {0, 1, 2})
    assert tokenizer.special_tokens() == {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


def test_what_the_configuration_says_of_ends_and_tokens(directory):
    added = {"0": {"content": "<unk>"}, "320": {"content": "<|user|>", "special": True}}
    settings = {"add_bos_token": False, "add_eos_token": True, "legacy": False, "added_tokens_decoder": added}
    path = directory({"tokenizer_class": "LlamaTokenizer", "eos_token": {"content": "</s>"}, **settings})
    pieces = made.llama_pieces()
    pieces += [(f"word{number}", -1e3, made.UNUSED) for number in range(320 - len(pieces))]
    made.sentencepiece(path / "tokenizer.model", pieces)
    ids = {text: number for number, (text, _, _) in enumerate(pieces)}
    (found,) = encoded(path, ["the<|user|>the"])
    assert found == [ids["\u2581the"], 320, ids["the"], 2]  # the blank is at the start alone


def test_tokens_of_the_vocabulary_that_files_call_special(directory):
    """By `added_tokens_decoder`, by the list of further ones, and by what older checkpoints have: a file of its own."""
    pieces = [*made.llama_pieces(), ("<|im_start|>", -9e3, made.NORMAL), ("<|im_end|>", -9e3, made.NORMAL)]
    size = len(pieces)
    decoder = {str(size - 2): {"content": "<|im_start|>", "special": True}}
    settings = {"additional_special_tokens": ["<|im_end|>", "<|new|>"], "added_tokens_decoder": decoder}
    path = directory({"tokenizer_class": "YiTokenizer", "add_bos_token": False, **settings})
    (path / "added_tokens.json").write_text(json.dumps({"<|new|>": size, "<|plain|>": size + 1}))
    made.sentencepiece(path / "tokenizer.model", pieces)
    tokenizer = tokenizer_from_directory(path)
    assert tokenizer.encode("<|im_start|><|im_end|><|new|><|plain|>") == [size - 2, size - 1, size, size + 1]
    assert tokenizer.special_ids == {0, 1, 2, size - 2, size - 1, size}


def test_a_model_without_blanks_in_front_and_without_bytes(directory):
    pieces = [one for one in made.llama_pieces() if one[2] != made.BYTE]
    path = directory({"tokenizer_class": "GemmaTokenizer", "add_bos_token": False})
    made.sentencepiece(path / "tokenizer.model", pieces, byte_fallback=False, prefix=False, squeezes=True)
    ids = {text: number for number, (text, _, _) in enumerate(pieces)}
    assert encoded(path, ["  the  er ", "the 世界"]) == [
        [ids["the"], ids["\u2581er"]],
        [ids["the"], ids["\u2581"], 0],
    ]


def unigram(path, **options):
    scores = {"\u2581the": -1.0, "\u2581": -2.0, "token": -2.5, "t": -3.0, "o": -3.0, "k": -3.0, "e": -3.0, "n": -3.0}
    scores |= {"\u2581to": -2.0, "ken": -2.0, "h": -3.0}
    head = [("<unk>", 0.0, made.UNKNOWN), ("<s>", 0.0, made.CONTROL), ("</s>", 0.0, made.CONTROL)]
    pieces = [*head, *((text, score, made.NORMAL) for text, score in scores.items())]
    made.sentencepiece(path, pieces, made.UNIGRAM, byte_fallback=False, **options)
    return [text for text, *_ in pieces]


def test_pieces_of_a_unigram_model_are_the_likeliest(directory):
    path = directory({"tokenizer_class": "LlamaTokenizer"})
    texts = unigram(path / "tokenizer.model")
    (found,) = encoded(path, ["the token then x"], add_special_tokens=False)
    named = [texts[number] for number in found]
    assert named == ["\u2581the", "\u2581to", "ken", "\u2581the", "n", "\u2581", "<unk>"]


@pytest.mark.parametrize(("name", "pair"), [("XLMRobertaTokenizer", "0 X 2 2 X 2"), ("XGLMTokenizer", "2 X 2 2 X")])
def test_ids_of_fairseq(directory, name, pair):
    path = directory({"tokenizer_class": name})
    texts = unigram(path / "sentencepiece.bpe.model")
    tokenizer = tokenizer_from_directory(path)
    the = texts.index("\u2581the") + 1
    assert tokenizer.encode("the x", add_special_tokens=False) == [the, texts.index("\u2581") + 1, 3]
    (fitted,) = tokenizer.fit([("the", "the")])
    assert fitted.ids == [the if word == "X" else int(word) for word in pair.split()]
    assert tokenizer.vocab_size == len(texts) + 1 + (1 if "Roberta" in name else 7)


def test_chatglm_has_words_of_its_own(directory):
    path = directory({"tokenizer_class": "ChatGLMTokenizer", "auto_map": {"AutoTokenizer": ["a.B", None]}})
    pieces = [*made.llama_pieces(), *((char, -99.0, made.NORMAL) for char in "sp")]
    pieces = list({text: (text, score, kind) for text, score, kind in pieces}.values())
    made.sentencepiece(path / "tokenizer.model", pieces)
    first = len(pieces)
    tokenizer = tokenizer_from_directory(path)
    assert tokenizer.encode("the") == [first + 1, first + 3, *made.joined("the", pieces)]  # [gMASK] sop
    assert first + 3 not in tokenizer.encode("philosophy of soporifics", add_special_tokens=False)
    turn = tokenizer.encode("[gMASK]sop<|user|>\n the", add_special_tokens=False)
    assert turn == [first + 1, first + 3, first + 6, *made.joined("\n the", pieces)]


# -- byte strings by rank ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["QWenTokenizer", "ChatGLM4Tokenizer"])
def test_byte_strings_are_joined_by_their_ranks(directory, name):
    tiktoken = pytest.importorskip("tiktoken")
    qwen = name == "QWenTokenizer"
    path = directory({"tokenizer_class": name, "auto_map": {"AutoTokenizer": ["a.B", None]}})
    ranks = made.ranks(path / ("qwen.tiktoken" if qwen else "tokenizer.model"))
    added = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>"]
    first = len(ranks)
    if not qwen:
        decoder = {str(first + place): {"content": text, "special": True} for place, text in enumerate(added)}
        directory({"tokenizer_class": name, "added_tokens_decoder": decoder})
    reference = tiktoken.Encoding("x", pat_str=QWEN2 if qwen else LLAMA3, mergeable_ranks=ranks, special_tokens={})
    texts = TEXTS[:-1]  # Qwen composes characters first
    assert encoded(path, texts, add_special_tokens=False) == [reference.encode(text) for text in texts]
    tokenizer = tokenizer_from_directory(path)
    prefix = [] if qwen else [first + 2, first + 4]
    assert tokenizer.encode("the") == [*prefix, *reference.encode("the")]
    assert tokenizer.encode("<|endoftext|>", add_special_tokens=False) == [first]
    assert tokenizer.vocab_size == first + (208 if qwen else 5)
    if qwen:
        assert len(set(map(tuple, tokenizer.encode_batch(["e\u0301", "\u00e9"])))) == 1


@pytest.mark.parametrize("special", [None, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]])
def test_tekken(directory, special):
    converter = pytest.importorskip("transformers.integrations.mistral.tokenizer")
    path = directory({"tokenizer_class": "MistralCommonBackend"})
    listed = special or ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]"]
    reference = converter.MistralConverter(str(made.tekken(path / "reference.json", special=listed))).converted()
    made.tekken(path / "tekken.json", special=special)
    texts = [*TEXTS, "[INST] the [/INST]"]
    expected = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    assert encoded(path, texts, add_special_tokens=False) == expected
    tokenizer = tokenizer_from_directory(path)
    assert tokenizer.encode("the")[0] == tokenizer.bos_id == 1 and tokenizer.eos_ids == (2,)
    assert tokenizer.vocab_size == reference.get_vocab_size()


# -- merges and words, against transformers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("GPT2Tokenizer", {}),
        ("GPT2Tokenizer", {"add_prefix_space": True}),
        ("GPT2Tokenizer", {"add_bos_token": True, "bos_token": "</s>", "eos_token": "</s>"}),
        ("Qwen2Tokenizer", {}),
        ("RobertaTokenizer", {}),
    ],
)
def test_merges_are_read_as_transformers_does(directory, name, settings):
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = ["<s>", "<pad>", "</s>", "<unk>", "<|endoftext|>", "<mask>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=words, show_progress=False)
    backend.train_from_iterator(TEXTS * 4, trainer)
    path = directory({"tokenizer_class": name, **settings})
    backend.model.save(str(path))
    reference = getattr(transformers, name).from_pretrained(path)
    texts = [*TEXTS, "a<|endoftext|>b"] if name != "RobertaTokenizer" else [*TEXTS, "a <mask> b"]
    plain = [reference(text, add_special_tokens=False).input_ids for text in texts]
    assert encoded(path, texts, add_special_tokens=False) == plain
    if "add_bos_token" not in settings:
        assert encoded(path, texts) == [reference(text).input_ids for text in texts]
    else:
        assert encoded(path, texts) == [[backend.token_to_id("</s>"), *ids] for ids in plain]


@pytest.mark.parametrize("settings", [{}, {"do_lower_case": False}])
def test_words_are_read_as_transformers_does(directory, settings):
    transformers = pytest.importorskip("transformers")
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "the",
        "token",
        "##s",
        "read",
        "##er",
        "i",
        "I",
        "'",
        "m",
        "世",
    ]
    path = directory({"tokenizer_class": "BertTokenizer", **settings})
    (path / "vocab.txt").write_text("\n".join(words) + "\n")
    reference = transformers.BertTokenizer.from_pretrained(path)
    assert encoded(path) == [reference(text).input_ids for text in TEXTS]
    (fitted,) = tokenizer_from_directory(path).fit([("the token", "I'm")])
    assert fitted.ids == reference("the token", "I'm").input_ids


# -- what cannot be converted ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "settings", "needed", "what"),
    [
        ("spiece.model", {"tokenizer_class": "T5Tokenizer"}, ["spiece.model", "T5Tokenizer"], "python -c"),
        ("vocab.json", {"tokenizer_class": "NewTokenizer"}, ["vocab.json", "NewTokenizer"], "python -c"),
        (
            "tokenizer.model",
            {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}},
            ["tokenizer.model", "OwnTokenizer", "Python code of the checkpoint"],
            "a version of the model that has a tokenizer.json",
        ),
        ("tokenizer.model", None, ["tokenizer.model cannot be converted"], "python -c"),
        ("README.md", None, ["there is no tokenizer.json in"], "Download it"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_what_to_do(directory, file, settings, needed, what):
    path = directory(settings)
    (path / file).write_bytes(b"x")
    told = missing_tokenizer(path)
    with pytest.raises(CheckpointError) as caught:
        tokenizer_from_directory(path)
    error = caught.value
    assert error.code == "CORE-M110" and error.message == f"{told}." and "\n" not in str(error)
    assert all(one in told for one in needed) and what in error.hint
    if "python -c" in what:
        words = shlex.split(error.hint.split("`")[3])
        assert words[:2] == ["python", "-c"] and words[-1] == str(path)
        compile(words[2], "hint", "exec")


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("LlamaTokenizer", "tokenizer.model", b"\x0a\x7fcut"),
        ("LlamaTokenizer", "tokenizer.model", b""),
        ("LlamaTokenizer", "tokenizer.model", b"\x08\x01"),
        ("QWenTokenizer", "qwen.tiktoken", b"!!! 0"),
        ("", "tekken.json", b"{}"),
        ("BertTokenizer", "vocab.txt", b"the\n"),
    ],
)
def test_a_damaged_vocabulary_is_named(directory, name, file, content):
    path = directory({"tokenizer_class": name})
    (path / file).write_bytes(content)
    with pytest.raises(CheckpointError, match="CORE-M111 no tokenizer can be made of") as caught:
        tokenizer_from_directory(path)
    assert file in str(caught.value) and "\n" not in str(caught.value)
