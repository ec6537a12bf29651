"""Log-probabilities in the shapes of the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.api.tokenizer import Tokenizer, token_bytes
from core.frontend.results import Logprob

LOWEST = -9999.0
"""Stands for minus infinity, which JSON does not have."""

Position = dict[int, Logprob]


class ShownTokens:
    """How one answer shows tokens: by a name, and by the bytes that they add to the text.

    Args:
        as_ids: Name them `token_id:N`, where their texts are of no use.
        skip_special: Special tokens are left out of the text, so that they add no bytes.
    """

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool = False, skip_special: bool = True) -> None:
        self._tokenizer, self._as_ids = tokenizer, as_ids
        self._left_out = tokenizer.special_ids if skip_special else frozenset()

    def name(self, token: int, entry: Logprob | None) -> str:
        """Return a token's own text, in which U+FFFD stands for bytes that are no whole character; or its id."""
        if self._as_ids:
            return f"token_id:{token}"
        if entry is not None and entry.decoded_token is not None:
            return entry.decoded_token
        return self._tokenizer.token(token)

    def bytes(self, token: int) -> list[int]:
        """Return a token's own bytes: those of a sequence, joined, are the bytes of its text."""
        return [] if token in self._left_out else list(token_bytes(self._tokenizer, token) or b"")


def chat_logprobs(
    ids: Sequence[int], positions: Sequence[Position], tokens: ShownTokens, top: int
) -> list[dict[str, Any]]:
    """Return one entry per token, each with the `top` most likely alternatives, and then those that were asked for."""
    return [_chat_entry(token, position, tokens, top) for token, position in zip(ids, positions)]


def _chat_entry(chosen: int, position: Position, tokens: ShownTokens, top: int) -> dict[str, Any]:
    return {
        **_chat_token(chosen, position[chosen], tokens),
        "top_logprobs": [_chat_token(token, position[token], tokens) for token in likeliest(position, top)],
    }


def likeliest(position: Position, top: int) -> list[int]:
    """Return the `top` most likely tokens of a position, and those that were asked for behind them."""
    ranked = sorted(((token, entry) for token, entry in position.items() if entry.rank is not None), key=_likelihood)
    return [token for token, _ in ranked[:top]] + [token for token, entry in position.items() if entry.rank is None]


def _likelihood(item: tuple[int, Logprob]) -> float:
    return -item[1].logprob


def _chat_token(token: int, entry: Logprob, tokens: ShownTokens) -> dict[str, Any]:
    return {"token": tokens.name(token, entry), "logprob": max(entry.logprob, LOWEST), "bytes": tokens.bytes(token)}


class CompletionLogprobs:
    """Builds the four parallel lists of a plain completion, piece by piece; keeps the running text offset."""

    def __init__(self, tokens: ShownTokens) -> None:
        self._tokens = tokens
        self._offset = 0

    def piece(self, ids: Sequence[int], positions: Sequence[Position | None]) -> dict[str, list[Any]]:
        """Return the lists for further tokens; a position is None where nothing was scored (the first token)."""
        lists: dict[str, list[Any]] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
        for token, position in zip(ids, positions):
            text = self._tokens.name(token, position[token] if position else None)
            lists["tokens"].append(text)
            lists["text_offset"].append(self._offset)
            lists["token_logprobs"].append(max(position[token].logprob, LOWEST) if position else None)
            lists["top_logprobs"].append(self._top(position) if position else None)
            self._offset += len(text)
        return lists

    def _top(self, position: Position) -> dict[str, float]:
        found: dict[str, float] = {}
        for token, entry in position.items():
            found.setdefault(self._tokens.name(token, entry), max(entry.logprob, LOWEST))
        return found


def join_lists(first: dict[str, list[Any]] | None, second: dict[str, list[Any]] | None) -> dict[str, list[Any]] | None:
    """Append the lists of `second` to those of `first`."""
    if first is None or second is None:
        return first if second is None else second
    for name, values in second.items():
        first[name].extend(values)
    return first


def prompt_logprobs(positions: Sequence[Position | None] | None) -> list[dict[str, Any] | None] | None:
    """Return the prompt's log-probabilities keyed by token id."""
    if positions is None:
        return None
    return [None if position is None else _by_id(position) for position in positions]


def _by_id(position: Position) -> dict[str, Any]:
    return {str(token): _entry(entry) for token, entry in position.items()}


def _entry(entry: Logprob) -> dict[str, Any]:
    return {"logprob": max(entry.logprob, LOWEST), "rank": entry.rank, "decoded_token": entry.decoded_token}
