"""A tokenizer from a GGUF file's vocabulary.

Byte-level BPE ("gpt2"), SentencePiece BPE ("llama"), words ("bert"), pieces of the greatest sum of scores ("plamo2",
"t5").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from gguf.constants import TokenType
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from core_plugin_gguf.config import special_ids
from core_plugin_gguf.faults import bad_tokenizer
from core_plugin_gguf.pretokenizers import NAMES, RANKED, WHOLE_WORDS, normalizer, splitter
from core_plugin_gguf.unigram import plamo, sentencepiece

if TYPE_CHECKING:
    from core_plugin_gguf.header import Header

_KINDS = ("gpt2", "llama", "bert", "plamo2", "t5")
_AS = {"gemma4": "llama"}
"""Kinds that are another one here: Gemma 4's has merges in place of scores."""
_SPACE = "\u2581"
_LONGEST_PIECE = 1024
"""Characters of the longest token that merges are sought for: the search is quadratic, real pieces are far shorter."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A file's description of its tokenizer.

    Attributes:
        kind: `gpt2`, `llama`, `bert`, `plamo2` or `t5`.
        pre: Name of the pre-tokenizer of a `gpt2` vocabulary.
        types: `gguf.TokenType` of every token; empty if the file does not say.
        scores: Of a `llama` vocabulary: the higher, the earlier two pieces are merged into the token; of `plamo2`
            and `t5` the logarithm of the token's probability.
        bos, eos: Ids put before and after a text, or None; of `bert` those of [CLS] and [SEP].
        named: Ids that the file gives a role (`bos_token_id`, ...).
        characters: Of `t5`: SentencePiece's table of characters and what they become; empty: there is none.
        squeezes: Of `t5`: whether several spaces count as one, and those around a text as none.
    """

    path: Path
    kind: str
    pre: str
    tokens: Sequence[str]
    types: Sequence[int]
    scores: Sequence[float]
    merges: Sequence[str]
    bos: int | None
    eos: int | None
    add_space: bool
    named: dict[str, int]
    characters: bytes = b""
    squeezes: bool = True

    @staticmethod
    def of(header: Header) -> Vocabulary:
        """Read the vocabulary of a file. Raises `CheckpointError` `CORE-M143` if it is not complete."""
        kind = header.text("tokenizer.ggml.model")
        kind = _AS.get(kind, kind)
        tokens = header.strings("tokenizer.ggml.tokens") or []
        if not tokens or kind not in _KINDS:
            what = f"the vocabulary kind is {kind!r}; supported: {', '.join(_KINDS)}" if tokens else "it has no tokens"
            raise bad_tokenizer(header.path, what)
        named = special_ids(header, len(tokens))
        if kind == "bert":
            return Vocabulary._of_words(header, tokens, named)
        pre = header.text("tokenizer.ggml.pre", "default")
        # Files without the flag follow what the converters of their time assumed.
        add_bos = header.flag("tokenizer.ggml.add_bos_token")
        wants_bos = add_bos if add_bos is not None else kind == "llama" or pre in WHOLE_WORDS
        add_eos = header.flag("tokenizer.ggml.add_eos_token")
        wants_eos = add_eos if add_eos is not None else kind == "t5"
        vocabulary = Vocabulary(
            path=header.path,
            kind=kind,
            pre=pre,
            tokens=tokens,
            types=[int(number) for number in header.numbers("tokenizer.ggml.token_type") or ()],
            scores=header.numbers("tokenizer.ggml.scores") or (),
            merges=header.strings("tokenizer.ggml.merges") or (),
            bos=_first_id(header, ("bos", "cls"), len(tokens)) if wants_bos else None,
            eos=_first_id(header, ("eos", "seperator"), len(tokens)) if wants_eos else None,
            add_space=header.flag("tokenizer.ggml.add_space_prefix") is not False,
            named=named,
            characters=bytes(int(one) & 255 for one in header.numbers("tokenizer.ggml.precompiled_charsmap") or ()),
            squeezes=header.flag("tokenizer.ggml.remove_extra_whitespaces") is not False,
        )
        vocabulary.check()
        return vocabulary

    @staticmethod
    def _of_words(header: Header, tokens: Sequence[str], named: dict[str, int]) -> Vocabulary:
        bos, eos = (_first_id(header, names, len(tokens)) for names in (("cls", "bos"), ("seperator", "eos")))
        if bos is None or eos is None or "unk_token_id" not in named:
            raise bad_tokenizer(header.path, "it names no tokens that begin and end a text, or none for unknown words")
        types = [int(number) for number in header.numbers("tokenizer.ggml.token_type") or ()]
        vocabulary = Vocabulary(header.path, "bert", "", tokens, types, (), (), bos, eos, False, named)
        vocabulary.check()
        return vocabulary

    def check(self) -> None:
        """Refuse what no tokenizer can be built from."""
        size = len(self.tokens)
        for name, values in (("token types", self.types), ("scores", self.scores)):
            if values and len(values) != size:
                raise bad_tokenizer(self.path, f"it has {size} tokens, but {len(values)} {name}")
        if self.kind == "gpt2" and self.pre not in NAMES:
            raise bad_tokenizer(
                self.path, f"the pre-tokenizer {self.pre!r} is not known; known: {', '.join(sorted(NAMES))}"
            )
        if self.kind == "gpt2" and not self.merges and self.pre not in RANKED:
            raise bad_tokenizer(self.path, "it has no merges")
        if self.kind == "llama" and not (self.scores or self.merges):
            raise bad_tokenizer(self.path, "it has neither scores nor merges")
        if self.kind == "t5" and not (self.scores and all(map(isfinite, self.scores)) and "unk_token_id" in self.named):
            raise bad_tokenizer(self.path, "it has no scores, a score without end, or no token for what is unknown")
        if self.kind == "plamo2" and not (self.scores and self.types and all(map(isfinite, self.scores))):
            raise bad_tokenizer(self.path, "it has no scores, no types of tokens, or a score without end")

    def of_type(self, *kinds: TokenType) -> list[int]:
        """Return the ids of the tokens of some types."""
        return [number for number, kind in enumerate(self.types) if kind in kinds]


def _first_id(header: Header, names: Sequence[str], size: int) -> int | None:
    """Return the first of these tokens that the file names: older converters have other names for them."""
    found = (header.integer(f"tokenizer.ggml.{name}_token_id") for name in names)
    return next((one for one in found if one is not None and 0 <= one < size), None)


def build_backend(vocabulary: Vocabulary) -> Tokenizer:
    """Return a tokenizer of the `tokenizers` library that encodes as the vocabulary's makers meant it."""
    ids = {token: number for number, token in enumerate(vocabulary.tokens)}
    makers = {"gpt2": _byte_level, "llama": _sentencepiece, "bert": _wordpiece, "plamo2": plamo, "t5": sentencepiece}
    tokenizer = makers[vocabulary.kind](vocabulary, ids)
    _add_tokens(tokenizer, vocabulary)
    _add_ends(tokenizer, vocabulary)
    return tokenizer


def _pairs(vocabulary: Vocabulary, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the file's merges as pairs. The library would panic on one whose tokens are not in the vocabulary."""
    pairs, tokens = [], vocabulary.tokens
    for merge in vocabulary.merges:
        left, _, right = merge.partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            raise bad_tokenizer(vocabulary.path, f"the merge {merge!r} is not one of two tokens into a third")
        pairs.append((tokens[ids[left]], tokens[ids[right]]))  # not strings of their own: they would be most of all
    return pairs


def _byte_level(vocabulary: Vocabulary, ids: dict[str, int]) -> Tokenizer:
    ranked = vocabulary.pre in RANKED
    whole = ranked or vocabulary.pre in WHOLE_WORDS
    merges = _merges_by(vocabulary, ids, lambda number: number) if ranked else _pairs(vocabulary, ids)
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=whole, fuse_unk=False))
    change = normalizer(vocabulary.pre)
    if change is not None:
        tokenizer.normalizer = change
    tokenizer.pre_tokenizer = splitter(vocabulary.pre)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(vocabulary: Vocabulary, ids: dict[str, int]) -> Tokenizer:
    unknown = vocabulary.named.get("unk_token_id")
    model = models.BPE(
        vocab=ids,
        merges=_pairs(vocabulary, ids)
        if vocabulary.merges
        else _merges_by(vocabulary, ids, lambda number: -vocabulary.scores[number]),
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    spaces = normalizers.Replace(" ", _SPACE)
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if vocabulary.add_space:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces])
        steps.append(decoders.Strip(content=" ", left=1))
    else:
        tokenizer.normalizer = spaces
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _wordpiece(vocabulary: Vocabulary, ids: dict[str, int]) -> Tokenizer:
    """Converters mark the beginning of a word, where BERT's own list marks what goes on with one."""
    special = set(vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN))
    words = {}
    for token, number in ids.items():
        starts = number in special or token.startswith(_SPACE)
        words[token.removeprefix(_SPACE) if starts else f"##{token}"] = number
    unknown = vocabulary.tokens[vocabulary.named["unk_token_id"]]
    tokenizer = Tokenizer(models.WordPiece(words, unk_token=unknown, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)  # as ggml's runtime does always
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def _merges_by(vocabulary: Vocabulary, ids: dict[str, int], key: Callable[[int], float]) -> list[tuple[str, str]]:
    """Return merges that join the neighbours whose union has the lowest key: by scores as SentencePiece does.

    Args:
        key: Of a token, by its id.
    """
    normal = set(vocabulary.of_type(TokenType.NORMAL)) if vocabulary.types else set(ids.values())
    merges = []
    for token, number in ids.items():
        if number not in normal or len(token) > _LONGEST_PIECE:
            continue
        for cut in range(1, len(token)):
            left, right = ids.get(token[:cut]), ids.get(token[cut:])
            if left is not None and right is not None:
                merges.append((key(number), number, left, right))
    merges.sort()
    return [(vocabulary.tokens[left], vocabulary.tokens[right]) for _, _, left, right in merges]


def _add_tokens(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    """Make special and user-defined tokens match as a whole."""
    special = set(vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN))
    if not vocabulary.types:
        special.update(vocabulary.named.values())
    plain = vocabulary.of_type(TokenType.USER_DEFINED)
    tokenizer.add_special_tokens(
        [AddedToken(vocabulary.tokens[i], special=True, normalized=False) for i in sorted(special)]
    )
    tokenizer.add_tokens([AddedToken(vocabulary.tokens[i], special=False, normalized=False) for i in plain])


def _add_ends(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    """Put the file's tokens before and after a text."""
    ends = {name: number for name, number in (("bos", vocabulary.bos), ("eos", vocabulary.eos)) if number is not None}
    if not ends:
        return
    single = [*(["bos"] if "bos" in ends else []), "$A", *(["eos"] if "eos" in ends else [])]
    start, second_type = single, 1
    if vocabulary.kind == "bert":  # it has one token between the texts of a pair
        start = single[1:]
    elif vocabulary.kind == "t5" and len(single) > 2:  # XLM-RoBERTa has two equal ones, and one type of tokens
        start, second_type = ["eos", *single[1:]], 0
    second = [f"{part.replace('$A', '$B')}:{second_type}" for part in start]
    tokens = [{"id": name, "ids": [number], "tokens": [vocabulary.tokens[number]]} for name, number in ends.items()]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=[*single, *second], special_tokens=tokens
    )
