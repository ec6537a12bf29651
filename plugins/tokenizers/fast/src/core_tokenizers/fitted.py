"""Texts and pairs of texts as token ids, cut to a number of tokens before the special tokens are put around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers


@dataclass(frozen=True, slots=True)
class FittedText:
    """A text or a pair.

    Attributes:
        second: Position of the first token that belongs to the second text (what separates the two belongs to the
            first); 0 if there is none, or if the tokenizer makes no difference.
    """

    ids: list[int]
    second: int = 0


def fit_texts(
    backend: tokenizers.Tokenizer, texts: Sequence[tuple[str, str | None]], limit: int | None
) -> list[FittedText]:
    """Return the ids of texts and of pairs; see `FastTokenizer.fit`."""
    parts = [part for pair in texts for part in pair if part is not None]
    try:
        encoded = iter(backend.encode_batch(parts, add_special_tokens=False))
    except TypeError:
        for part in parts:
            part.encode()  # says which character the library could not take
        raise
    return [
        _joined(backend, next(encoded), next(encoded) if second is not None else None, limit) for _, second in texts
    ]


def _joined(
    backend: tokenizers.Tokenizer, first: tokenizers.Encoding, second: tokenizers.Encoding | None, limit: int | None
) -> FittedText:
    if limit is not None:
        room = limit - backend.num_special_tokens_to_add(second is not None)
        if room < (1 if second is None else 2):
            raise ValueError(f"{limit} tokens leave no room for a text beside the special tokens")
        sizes = shares(len(first), len(second) if second is not None else 0, room)
        first.truncate(sizes[0])
        if second is not None:
            second.truncate(sizes[1])
    whole = backend.post_process(first, second, add_special_tokens=True)
    types = whole.type_ids
    return FittedText(whole.ids, types.index(1) if second is not None and 1 in types else 0)


def shares(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how much of two lengths stays when both together may have `room`: the longer gives way first."""
    if first + second <= room:
        return first, second
    half = room // 2
    if min(first, second) <= half:
        return (first, room - first) if first <= second else (room - second, second)
    return room - half, half
