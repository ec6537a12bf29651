"""Plain completions: pieces of text, and texts folded from pieces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core.api import Answer, Delta, Prompt, Text, Tokenizer
from core_plugin_openai.job import Piece
from core_plugin_openai.logprobs import CompletionLogprobs, join_lists, prompt_logprobs


@dataclass(frozen=True, slots=True)
class Wanted:
    """Parts of an answer that a request wants to see.

    Attributes:
        echo: The prompt in front of every text.
        logprobs: Log-probabilities, with `echo` of the prompt too.
        prompt_logprobs: The prompt's log-probabilities in a field of their own.
        token_ids: Ids of prompt and output.
        tokens_as_ids: Tokens of log-probabilities as `token_id:N`.
        prompt_text: The prompt's text in a field of its own.
    """

    echo: bool = False
    logprobs: bool = False
    prompt_logprobs: bool = False
    token_ids: bool = False
    tokens_as_ids: bool = False
    prompt_text: bool = False


class CompletionFormat:
    """`Format` of completions; sequence `s` of prompt `p` is choice `p * n + s`."""

    chunk_object = whole_object = "text_completion"

    def __init__(self, answer: Answer, tokenizer: Tokenizer, n: int, wanted: Wanted) -> None:
        self._answer = answer
        self._tokenizer = tokenizer
        self._n = n
        self._wanted = wanted
        self._logprobs: dict[int, CompletionLogprobs] = {}
        self._folds: dict[int, Fold] = {}

    def pieces(self, delta: Delta) -> list[Piece]:
        """Return what is new; a sequence's first piece brings what belongs to the prompt."""
        index = delta.index
        piece: Piece = {"index": index, "text": "", "logprobs": None, "finish_reason": None}
        first = index not in self._logprobs
        if first:
            self._logprobs[index] = CompletionLogprobs(as_ids=self._wanted.tokens_as_ids)
            self._open(piece, self._answer.prompts[index // self._n])
        self._extend(piece, delta)
        return [piece] if first or _says_something(piece) else []

    def head(self) -> dict[str, Any]:
        """Return no top-level fields: what belongs to a prompt stands in its choices."""
        return {}

    def fold(self, piece: Piece) -> None:
        """Add a piece to its choice."""
        fold = self._folds.get(piece["index"])
        if fold is None:
            self._folds[piece["index"]] = Fold(piece, [piece["text"]])
        else:
            fold.add(piece)

    def choices(self) -> list[dict[str, Any]]:
        """Return the choices, by index."""
        return [self._folds[index].choice() for index in sorted(self._folds)]

    def _open(self, piece: Piece, prompt: Prompt) -> None:
        wanted = self._wanted
        if wanted.prompt_text:
            piece["prompt_text"] = prompt.text
        if wanted.echo:
            piece["text"] = prompt.text
            if wanted.logprobs:
                piece["logprobs"] = self._logprobs[piece["index"]].prompt(*self._scored(prompt))
        if wanted.prompt_logprobs:
            piece["prompt_logprobs"] = prompt_logprobs(prompt.scores) or None
        if wanted.token_ids:
            piece["prompt_token_ids"] = prompt.ids

    def _scored(self, prompt: Prompt) -> tuple[list[Any], list[str]]:
        """Return a prompt's scores, and the names of its tokens, which has some where none was asked for."""
        ids = prompt.ids
        scores = list(prompt.scores) or [None] * len(ids)
        as_ids, token = self._wanted.tokens_as_ids, self._tokenizer.token
        return scores, [f"token_id:{one}" if as_ids else token(one) for one in ids]

    def _extend(self, piece: Piece, delta: Delta) -> None:
        wanted = self._wanted
        for event in delta.events:
            if isinstance(event, Text):
                piece["text"] += event.text
        if wanted.logprobs and delta.scores:
            new = self._logprobs[piece["index"]].piece(delta.scores)
            piece["logprobs"] = join_lists(piece["logprobs"], new)
        if wanted.token_ids:
            piece["token_ids"] = list(delta.token_ids)
        if delta.finish is not None:
            piece["finish_reason"] = delta.finish.reason
            piece["stop_reason"] = delta.finish.stop
            piece.update(delta.finish.told)


_GROWING = frozenset({"index", "text", "logprobs", "token_ids"})
"""Members of a piece that are added to those of its choice, or are the same; the others come with its end."""


@dataclass(slots=True)
class Fold:
    """One choice, growing out of its first piece."""

    first: Piece
    texts: list[str] = field(default_factory=list)

    def add(self, piece: Piece) -> None:
        """Add a further piece."""
        whole = self.first
        self.texts.append(piece["text"])
        whole["logprobs"] = join_lists(whole["logprobs"], piece["logprobs"])
        if "token_ids" in piece:
            whole["token_ids"].extend(piece["token_ids"])
        if piece["finish_reason"] is not None:
            whole.update({name: piece[name] for name in piece.keys() - _GROWING})

    def choice(self) -> dict[str, Any]:
        """Return the choice."""
        return {"stop_reason": None, **self.first, "text": "".join(self.texts)}


def _says_something(piece: Piece) -> bool:
    return bool(piece["text"] or piece["logprobs"] or piece.get("token_ids") or piece["finish_reason"])
