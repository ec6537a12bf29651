"""Plain completions: pieces of text, and texts folded from pieces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core.api.tokenizer import Tokenizer
from core.frontend.results import CompletionOutput, RequestOutput
from core.server.logprobs import CompletionLogprobs, Position, ShownTokens, join_lists, prompt_logprobs
from core.server.openai.job import Piece
from core.server.openai.told import told


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request wants to see.

    Attributes:
        echo: The prompt in front of every text.
        logprobs: Log-probabilities, with `echo` of the prompt too.
        prompt_logprobs: The prompt's log-probabilities in a field of their own.
        token_ids: Ids of prompt and output.
        tokens_as_ids: Tokens of log-probabilities as `token_id:N`.
        prompt_text: The prompt's text in a field of its own.
        prompt_only: `max_tokens` 0: the one token that the engine made is thrown away.
    """

    echo: bool = False
    logprobs: bool = False
    prompt_logprobs: bool = False
    token_ids: bool = False
    tokens_as_ids: bool = False
    prompt_text: bool = False
    prompt_only: bool = False


class CompletionFormat:
    """`Format` of completions; sequence `s` of prompt `p` is choice `p * n + s`."""

    chunk_object = whole_object = "text_completion"

    def __init__(self, tokenizer: Tokenizer, n: int, wanted: Wanted) -> None:
        self._tokenizer = tokenizer
        self._n = n
        self._wanted = wanted
        self._tokens = ShownTokens(tokenizer, as_ids=wanted.tokens_as_ids)
        self._scores: dict[int, list[Position | None]] = {}
        self._logprobs: dict[int, CompletionLogprobs] = {}
        self._folds: dict[int, Fold] = {}

    def pieces(self, prompt: int, output: RequestOutput) -> list[Piece]:
        """Return what is new; a sequence's first piece brings what belongs to the prompt."""
        if output.prompt_logprobs is not None:
            self._scores[prompt] = output.prompt_logprobs
        scores = self._scores.get(prompt)
        found: list[Piece] = []
        for sequence in output.outputs:
            index = prompt * self._n + sequence.index
            piece: Piece = {"index": index, "text": "", "logprobs": None, "finish_reason": None}
            first = index not in self._logprobs
            if first:
                self._logprobs[index] = CompletionLogprobs(self._tokens)
                self._open(piece, output, scores)
            self._extend(piece, sequence)
            if first or _says_something(piece):
                found.append(piece)
        return found

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

    def _open(self, piece: Piece, output: RequestOutput, scores: list[Position | None] | None) -> None:
        wanted = self._wanted
        if wanted.prompt_text:
            piece["prompt_text"] = self._prompt(output)
        if wanted.echo:
            piece["text"] = self._prompt(output)
            if wanted.logprobs:
                builder, ids = self._logprobs[piece["index"]], output.prompt_ids
                piece["logprobs"] = builder.piece(ids, scores or [None] * len(ids))
        if wanted.prompt_logprobs:
            piece["prompt_logprobs"] = prompt_logprobs(scores)
        if wanted.token_ids:
            piece["prompt_token_ids"] = output.prompt_token_ids

    def _prompt(self, output: RequestOutput) -> str:
        text = output.prompt
        return self._tokenizer.decode(output.prompt_ids, skip_special_tokens=False) if text is None else text

    def _extend(self, piece: Piece, sequence: CompletionOutput) -> None:
        wanted, kept = self._wanted, not self._wanted.prompt_only
        if kept:
            piece["text"] += sequence.text
        if kept and wanted.logprobs and sequence.logprobs:
            new = self._logprobs[piece["index"]].piece(sequence.token_ids, sequence.logprobs)
            piece["logprobs"] = join_lists(piece["logprobs"], new)
        if wanted.token_ids:
            piece["token_ids"] = list(sequence.token_ids) if kept else []
        if sequence.finish_reason is not None:
            piece["finish_reason"] = sequence.finish_reason if kept else "length"
            piece["stop_reason"] = sequence.stop_reason if kept else None
            piece.update(told(sequence))


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
