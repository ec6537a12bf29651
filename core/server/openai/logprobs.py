"""Log-probabilities in the shapes of the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.api.tokenizer import Tokenizer
from core.frontend.results import Logprob

LOWEST = -9999.0
"""Stands for minus infinity, which JSON does not have."""

Position = dict[int, Logprob]


def chat_logprobs(
    ids: Sequence[int], positions: Sequence[Position], tokenizer: Tokenizer, top: int, *, as_ids: bool = False
) -> list[dict[str, Any]]:
    """Return one entry per token, each with the `top` most likely alternatives; `as_ids` names tokens by their ids."""
    named = TokenIds() if as_ids else tokenizer
    return [_chat_entry(token, position, named, top) for token, position in zip(ids, positions)]


class TokenIds:
    """Names tokens `token_id:N`, where their texts are of no use."""

    def token(self, token_id: int) -> str:
        """Return the name of a token."""
        return f"token_id:{token_id}"


def _chat_entry(chosen: int, position: Position, tokenizer: Tokenizer | TokenIds, top: int) -> dict[str, Any]:
    likely = sorted(((token, entry) for token, entry in position.items() if entry.rank is not None), key=_likelihood)
    best = [*likely[:top], *((token, entry) for token, entry in position.items() if entry.rank is None)]
    return {
        **_chat_token(chosen, position[chosen], tokenizer),
        "top_logprobs": [_chat_token(token, entry, tokenizer) for token, entry in best],
    }


def _likelihood(item: tuple[int, Logprob]) -> float:
    return -item[1].logprob


def _chat_token(token: int, entry: Logprob, tokenizer: Tokenizer | TokenIds) -> dict[str, Any]:
    text = token_text(token, entry, tokenizer)
    return {"token": text, "logprob": max(entry.logprob, LOWEST), "bytes": list(text.encode("utf-8", "replace"))}


class CompletionLogprobs:
    """Builds the four parallel lists of a plain completion, piece by piece; keeps the running text offset."""

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool = False) -> None:
        self._tokenizer = TokenIds() if as_ids else tokenizer
        self._offset = 0

    def piece(self, ids: Sequence[int], positions: Sequence[Position | None]) -> dict[str, list[Any]]:
        """Return the lists for further tokens; a position is None where nothing was scored (the first token)."""
        lists: dict[str, list[Any]] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
        for token, position in zip(ids, positions):
            text = token_text(token, position[token] if position else None, self._tokenizer)
            lists["tokens"].append(text)
            lists["text_offset"].append(self._offset)
            lists["token_logprobs"].append(max(position[token].logprob, LOWEST) if position else None)
            lists["top_logprobs"].append(self._top(position) if position else None)
            self._offset += len(text)
        return lists

    def _top(self, position: Position) -> dict[str, float]:
        found: dict[str, float] = {}
        for token, entry in position.items():
            found.setdefault(token_text(token, entry, self._tokenizer), max(entry.logprob, LOWEST))
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


def token_text(token: int, entry: Logprob | None, tokenizer: Tokenizer | TokenIds) -> str:
    """Return a token's own text."""
    if isinstance(tokenizer, TokenIds):
        return tokenizer.token(token)
    if entry is not None and entry.decoded_token is not None:
        return entry.decoded_token
    return tokenizer.token(token)
