"""Log-probabilities in the shapes of the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.api import TokenScore


def token_name(score: TokenScore, *, as_id: bool) -> str:
    """Return a token's own text, or `token_id:N` where texts are of no use."""
    return f"token_id:{score.id}" if as_id else score.token


def chat_logprobs(scores: Sequence[TokenScore], *, as_ids: bool) -> list[dict[str, Any]]:
    """Return one entry per token, each with the most likely alternatives, and then those that were asked for."""
    return [
        {**_entry(score, as_ids), "top_logprobs": [_entry(other, as_ids) for other in score.top]} for score in scores
    ]


def _entry(score: TokenScore, as_ids: bool) -> dict[str, Any]:
    return {"token": token_name(score, as_id=as_ids), "logprob": score.logprob, "bytes": score.bytes}


class CompletionLogprobs:
    """Builds the four parallel lists of a plain completion, piece by piece; keeps the running text offset."""

    def __init__(self, *, as_ids: bool) -> None:
        self._as_ids = as_ids
        self._offset = 0

    def piece(self, scores: Sequence[TokenScore]) -> dict[str, list[Any]]:
        """Return the lists for further tokens."""
        lists = _lists()
        for score in scores:
            self._add(lists, token_name(score, as_id=self._as_ids), score.logprob, self._top(score))
        return lists

    def prompt(self, scores: Sequence[TokenScore | None], names: Sequence[str]) -> dict[str, list[Any]]:
        """Return the lists for a prompt's tokens, of which the first, at least, has no score."""
        lists = _lists()
        for score, name in zip(scores, names, strict=True):
            if score is None:
                self._add(lists, name, None, None)
            else:
                self._add(lists, token_name(score, as_id=self._as_ids), score.logprob, self._top(score))
        return lists

    def _add(self, lists: dict[str, list[Any]], name: str, logprob: float | None, top: dict[str, float] | None) -> None:
        lists["tokens"].append(name)
        lists["text_offset"].append(self._offset)
        lists["token_logprobs"].append(logprob)
        lists["top_logprobs"].append(top)
        self._offset += len(name)

    def _top(self, score: TokenScore) -> dict[str, float]:
        found: dict[str, float] = {}
        for one in (score, *score.top):
            found.setdefault(token_name(one, as_id=self._as_ids), one.logprob)
        return found


def join_lists(first: dict[str, list[Any]] | None, second: dict[str, list[Any]] | None) -> dict[str, list[Any]] | None:
    """Append the lists of `second` to those of `first`."""
    if first is None or second is None:
        return first if second is None else second
    for name, values in second.items():
        first[name].extend(values)
    return first


def prompt_logprobs(scores: Sequence[TokenScore | None]) -> list[dict[str, Any] | None]:
    """Return the prompt's log-probabilities keyed by token id."""
    return [None if score is None else _by_id(score) for score in scores]


def _by_id(score: TokenScore) -> dict[str, Any]:
    return {
        str(one.id): {"logprob": one.logprob, "rank": one.rank, "decoded_token": one.token}
        for one in (score, *score.top)
    }


def _lists() -> dict[str, list[Any]]:
    return {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
