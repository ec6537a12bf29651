"""Vocabulary files as their makers write them, without their libraries."""

from __future__ import annotations

import base64
import json
import struct
from itertools import pairwise

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2
SPACE = "\u2581"
WORDS = ("the", "he", "th", "in", "ing", "er", "token", "to", "ken", "read", "re", "ad", "ers", "llo", "lo", "ll")


def sentencepiece(path, pieces, model=BPE, *, byte_fallback=True, prefix=True, squeezes=False, ids=(0, 1, 2, -1)):
    """Write a model: `pieces` are `(text, score, kind)`; `ids` those of unk, bos, eos and pad."""
    trainer = _number(3, model) + _number(35, byte_fallback)
    trainer += b"".join(_number(40 + place, number) for place, number in enumerate(ids))
    rules = _number(3, prefix) + _number(4, squeezes)
    content = b"".join(_nested(1, _piece(*piece)) for piece in pieces) + _nested(2, trainer) + _nested(3, rules)
    path.write_bytes(content)
    return path


def llama_pieces(words=WORDS):
    """`<unk> <s> </s>`, bytes, then pieces by falling score: words, with a blank in front too, and characters."""
    texts = [*words, *(SPACE + word for word in words)]
    texts += [SPACE, *sorted({char for text in texts for char in text if char != SPACE}), SPACE * 2]
    head = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    head += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    return [*head, *((text, -float(place), NORMAL) for place, text in enumerate(dict.fromkeys(texts)))]


def joined(text, pieces):
    """What SentencePiece's BPE makes of a text: join the neighbours of the highest score until there are none."""
    ids = {text: number for number, (text, _, _) in enumerate(pieces)}
    scores = {text: score for text, score, kind in pieces if kind == NORMAL}
    parts = list((SPACE + text).replace(" ", SPACE)) if text else []
    while True:
        unions = [(scores.get(a + b, -1e9), -place) for place, (a, b) in enumerate(pairwise(parts))]
        if not unions or max(unions)[0] == -1e9:
            break
        place = -max(unions)[1]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    found = []
    for part in parts:
        found += [ids[part]] if part in ids else [ids[f"<0x{byte:02X}>"] for byte in part.encode()]
    return found


def ranks(path, words=WORDS):
    """Write a tiktoken file: the bytes, then words whose beginnings come before them. Return the ranks."""
    tokens = [bytes([byte]) for byte in range(256)]
    for word in words:
        tokens += [word[:end].encode() for end in range(2, len(word) + 1)] + [f" {word}"[:2].encode()]
    found = {token: rank for rank, token in enumerate(dict.fromkeys(tokens))}
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in found.items()))
    return found


def tekken(path, *, special=None, count=20):
    """Write a `tekken.json` of the same byte strings."""
    tokens = ranks(path)
    content = {
        "config": {
            "pattern": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+",
            "default_vocab_size": len(tokens) + count - 3,  # the last three are left out
            "default_num_special_tokens": count,
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": token.decode("latin-1")}
            for token, rank in tokens.items()
        ],
    }
    if special is not None:
        content["special_tokens"] = [{"rank": rank, "token_str": text} for rank, text in enumerate(special)]
    path.write_text(json.dumps(content))
    return path


def _varint(value):
    value &= (1 << 64) - 1
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def _number(field, value):
    return _varint(field << 3) + _varint(int(value))


def _nested(field, content):
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _piece(text, score, kind):
    found = _nested(1, text.encode()) + _varint(2 << 3 | 5) + struct.pack("<f", score)
    return found if kind == NORMAL else found + _number(3, kind)
