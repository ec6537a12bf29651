"""Where a model thinks, told by its tokenizer: for requests that bound the thinking without saying where it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.api.errors import RequestError
from core.api.grammars import Thinking, last_place
from core.api.sampling_params import SamplingParams
from core.api.tokenizer import Tokenizer

_START, _END = "<think>", "</think>"
_PARAM = "thinking_token_budget"


class ThinkingMarks:
    """Knows the tokens around a model's thinking, if its vocabulary has them as tokens of their own."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._marks: tuple[int, int] | None = None

    def bounded(self, params: SamplingParams, ids: Sequence[int]) -> SamplingParams:
        """Return parameters that say where the thinking is, if they bound it; a prompt may have begun a thought.

        Raises:
            RequestError: The vocabulary has no such tokens, so that nobody knows what there is to bound.
        """
        if params.thinking_token_budget is None or params.thinking is not None:
            return params
        if params.grammar is not None:  # which begins behind the thinking that it knows of, or leaves no room for any
            return params
        start, end = self._marks or self._find()
        prompt = np.asarray(ids, np.int64)
        thinking = Thinking(_END, _START, open=last_place(prompt, [start]) > last_place(prompt, [end]))
        return params.replace(thinking=thinking)

    def _find(self) -> tuple[int, int]:
        found = self._tokenizer.encode_batch([_START, _END], add_special_tokens=False)
        if any(len(ids) != 1 for ids in found):
            said = f"{_PARAM}: where this model's thinking ends is not known here; start with --reasoning-parser"
            raise RequestError(said, param=_PARAM, code="unsupported_parameter")
        self._marks = (found[0][0], found[1][0])
        return self._marks
