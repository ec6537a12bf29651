"""SentencePiece models (`tokenizer.model`): read without that library, and built with `tokenizers`.

Layout: a protocol buffer, `ModelProto`, of pieces (text, score, kind), of what its trainer was told, and of how text is
normalized.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Kinds of pieces."""

UNIGRAM, BPE = 1, 2
"""Kinds of models."""

_SPACE = "\u2581"
_ROLES = {40: "unk_token", 41: "bos_token", 42: "eos_token", 43: "pad_token"}
_DEFAULT_IDS = {40: 0, 41: 1, 42: 2, 43: -1}
_LONGEST_PIECE = 1024
"""Characters of the longest piece that merges are sought for: the search is quadratic, real pieces are far shorter."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An entry of the vocabulary."""

    text: str
    score: float = 0.0
    kind: int = NORMAL


@dataclass(frozen=True, slots=True)
class Pieces:
    """A model.

    Attributes:
        pieces: By id.
        model: `UNIGRAM` or `BPE`.
        byte_fallback: Whether characters that are no piece become their bytes.
        unknown: Id of what stands for such a character otherwise.
        roles: `bos_token`, ... -> text, for those that the model has.
        charsmap: Compiled rules of normalization; empty for none.
        prefix: Whether a blank is put in front of a text.
        squeezes: Whether blanks at the ends, and all but one of several, are dropped.
    """

    pieces: tuple[Piece, ...]
    model: int
    byte_fallback: bool
    unknown: int
    roles: dict[str, str]
    charsmap: bytes
    prefix: bool
    squeezes: bool

    @staticmethod
    def read(file: Path) -> Pieces:
        """Read a file. Raises ValueError: it is no such file, or of a kind that cannot be built."""
        pieces, trainer, normalizer = [], b"", b""
        for number, value in _fields(file.read_bytes()):
            if number == 1:
                pieces.append(_piece(_bytes(value)))
            elif number == 2:
                trainer = _bytes(value)
            elif number == 3:
                normalizer = _bytes(value)
        told, rules = dict(_fields(trainer)), dict(_fields(normalizer))
        model = _number(told.get(3, UNIGRAM))
        if not pieces or model not in (UNIGRAM, BPE):
            raise ValueError("it is no SentencePiece model of pieces with scores (unigram, BPE)")
        ids = {number: _number(told.get(number, default)) for number, default in _DEFAULT_IDS.items()}
        unknown = next((place for place, piece in enumerate(pieces) if piece.kind == UNKNOWN), 0)
        return Pieces(
            tuple(pieces),
            model,
            bool(told.get(35, 0)),
            unknown,
            {_ROLES[one]: pieces[place].text for one, place in ids.items() if 0 <= place < len(pieces)},
            _bytes(rules.get(2, b"")),
            bool(rules.get(3, 1)),
            bool(rules.get(4, 1)),
        )

    def after(self, first: Sequence[str], behind: Sequence[str]) -> Pieces:
        """Return the model with `first` in place of the first three pieces, and further ones behind all."""
        own = [Piece(text, kind=UNKNOWN if text == "<unk>" else CONTROL) for text in first]
        rest = [Piece(text, kind=CONTROL) for text in behind]
        return replace(self, pieces=(*own, *self.pieces[3:], *rest), unknown=list(first).index("<unk>"))

    def with_unread(self, texts: Sequence[str]) -> Pieces:
        """Return the model with further pieces that no text leads to."""
        return replace(self, pieces=(*self.pieces, *(Piece(text, kind=UNUSED) for text in texts)))

    def backend(self, *, everywhere: bool) -> Tokenizer:
        """Return the tokenizer, without what is put around a text.

        Args:
            everywhere: Whether the blank in front of a text is put behind each special token too.
        """
        tokenizer = Tokenizer(self._unigram() if self.model == UNIGRAM else self._bpe())
        steps: list[normalizers.Normalizer] = [normalizers.Precompiled(self.charsmap)] if self.charsmap else []
        if self.squeezes:
            steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
        spaces = normalizers.Replace(" ", _SPACE)
        if self.prefix and everywhere:
            steps.append(normalizers.Prepend(_SPACE))
        tokenizer.normalizer = normalizers.Sequence([*steps, spaces])
        if self.prefix and not everywhere:
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(_SPACE, prepend_scheme="first", split=False)
        tokenizer.decoder = self._decoder()
        for kind in (CONTROL, USER):
            tokenizer.add_tokens(
                [
                    AddedToken(piece.text, special=kind == CONTROL, normalized=False)
                    for piece in self.pieces
                    if piece.kind == kind
                ]
            )
        return tokenizer

    def _decoder(self) -> decoders.Decoder:
        steps: list[decoders.Decoder] = [decoders.Replace(_SPACE, " ")]
        if self.byte_fallback:
            steps.append(decoders.ByteFallback())
        steps.append(decoders.Fuse())
        if self.prefix:
            steps.append(decoders.Strip(content=" ", left=1))
        return decoders.Sequence(steps)

    def _unigram(self) -> models.Unigram:
        # What no text leads to is out of reach, and so far down that no sum brings it back.
        worst = min(piece.score for piece in self.pieces) - 1e6
        scores = [(one.text, one.score if one.kind in (NORMAL, USER) else worst) for one in self.pieces]
        return models.Unigram(scores, self.unknown, self.byte_fallback)

    def _bpe(self) -> models.BPE:
        ids = {piece.text: place for place, piece in enumerate(self.pieces)}
        return models.BPE(
            vocab=ids,
            merges=self._merges(ids),
            unk_token=self.pieces[self.unknown].text,
            fuse_unk=True,
            byte_fallback=self.byte_fallback,
        )

    def _merges(self, ids: dict[str, int]) -> list[tuple[str, str]]:
        """Return merges that do what SentencePiece does: join the neighbours whose union has the highest score."""
        merges: list[tuple[float, int, int, int]] = []
        for place, piece in enumerate(self.pieces):
            if piece.kind not in (NORMAL, USER) or len(piece.text) > _LONGEST_PIECE:
                continue
            for cut in range(1, len(piece.text)):
                left, right = ids.get(piece.text[:cut]), ids.get(piece.text[cut:])
                if left is not None and right is not None:
                    merges.append((-piece.score, place, left, right))
        merges.sort()
        return [(self.pieces[left].text, self.pieces[right].text) for _, _, left, right in merges]


def _piece(data: bytes) -> Piece:
    found = dict(_fields(data))
    (score,) = struct.unpack("<f", _bytes(found.get(2, bytes(4))))
    return Piece(_bytes(found.get(1, b"")).decode("utf-8"), score, _number(found.get(3, NORMAL)))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message: an int, or the bytes of what is longer."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(data, place)
            # Negative numbers are written as 64 bits.
            yield key >> 3, value - (1 << 64) if value >> 63 else value
            continue
        size, place = (8, place) if kind == 1 else (4, place) if kind == 5 else _varint(data, place)
        if kind not in (1, 2, 5) or place + size > len(data):
            raise ValueError("it is no SentencePiece model, or is cut short")
        yield key >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 70:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
    raise ValueError("it is no SentencePiece model, or is cut short")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("it is no SentencePiece model: a number stands where text is due")
    return value


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("it is no SentencePiece model: text stands where a number is due")
    return value
