"""Beam search: the sequences that the model finds most likely as a whole, on top of ordinary requests.

The rules are those of transformers: its parameters, given here, find the same sequences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from core.api.errors import RequestError
from core.api.sampling import MAX_LOGPROBS
from core.api.sampling_params import SamplingParams
from core.frontend.results import Logprob

Position = Mapping[int, Logprob]
"""The most likely tokens behind a sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchParams:
    """How to search.

    Attributes:
        beam_width: Sequences that are kept at a time, and returned.
        max_tokens: Longest output; None: as long as the model allows.
        length_penalty: A finished sequence's log-probability is divided by its length to this power: above 0 longer
            ones gain.
        early_stopping: True ends when `beam_width` sequences have ended; False when none of the others looks like
            getting better than them; `never` when none can.
        ignore_eos: Go on after end-of-sequence.
        stop: Texts that end a sequence (and are cut from it unless `include_stop_str_in_output`).
        include_stop_str_in_output: Leave the stop text that ended a sequence in it.
        stop_token_ids: Ids that end a sequence.
        skip_special_tokens: Leave special tokens out of the text.
        logprobs: Return each token's log-probability and this many alternatives; None returns nothing.

    Raises:
        RequestError: A value is outside its range; `param` names the field.
    """

    beam_width: int
    max_tokens: int | None = 16
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    ignore_eos: bool = False
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None

    def __post_init__(self) -> None:
        for name in ("beam_width", "max_tokens"):
            value = getattr(self, name)
            if not (value is None and name == "max_tokens") and (type(value) is not int or value < 1):
                raise RequestError(f"{name} must be an integer of at least 1, got {value!r}", param=name)
        if type(self.length_penalty) not in (int, float) or not math.isfinite(self.length_penalty):
            said = f"length_penalty must be a finite number, got {self.length_penalty!r}"
            raise RequestError(said, param="length_penalty")
        if self.early_stopping not in (True, False, "never"):
            said = f"early_stopping must be true, false or 'never', got {self.early_stopping!r}"
            raise RequestError(said, param="early_stopping")
        ends = [self.stop] if isinstance(self.stop, str) else list(self.stop)
        checked = SamplingParams(stop=ends, stop_token_ids=list(self.stop_token_ids), logprobs=self.logprobs)
        object.__setattr__(self, "stop", tuple(checked.stop))


@dataclass(frozen=True, slots=True)
class Trail:
    """Log-probabilities at each token of a sequence, the last one first."""

    before: Trail | None
    position: Position


@dataclass(frozen=True, slots=True)
class Beam:
    """A sequence.

    Attributes:
        logprob: Sum over its tokens.
        trail: What its tokens were chosen from.
        score: What finished ones are compared by.
        stop: The token or text that ended it; None: it is as long as it may be, or goes on.
    """

    tokens: tuple[int, ...] = ()
    logprob: float = 0.0
    trail: Trail | None = None
    score: float = 0.0
    stop: int | str | None = None

    def positions(self) -> list[Position]:
        """Return what each token was chosen from."""
        found, trail = [], self.trail
        while trail is not None:
            found.append(trail.position)
            trail = trail.before
        return found[::-1]


class BeamSearch:
    """The search from one prompt, step by step.

    Args:
        max_tokens: Longest output.
        eos_ids: Tokens that end a sequence.
        stopped: Returns the stop text that a sequence's last token completes, if one does.

    Attributes:
        running: Sequences whose next tokens are wanted; empty when the search is over.
        keep: How many of the most likely next tokens `step` looks at.
        ask: How many of them it is to be told of each sequence.

    Raises:
        RequestError: `beam_width` needs more alternatives than are told.
    """

    def __init__(
        self,
        params: BeamSearchParams,
        eos_ids: Sequence[int],
        max_tokens: int = 16,
        stopped: Callable[[Sequence[int]], str | None] | None = None,
    ) -> None:
        self._params, self._max_tokens, self._stopped = params, max_tokens, stopped
        self._ends = frozenset(() if params.ignore_eos else eos_ids) | frozenset(params.stop_token_ids)
        self._finished: list[Beam] = []
        self.running = [Beam()]
        # So many that enough of them go on, even if every other token ended its sequence.
        self.keep = params.beam_width * max(2, 1 + len(self._ends))
        if self.keep > MAX_LOGPROBS:
            most = MAX_LOGPROBS // max(2, 1 + len(self._ends))
            raise RequestError(f"beam_width must be at most {most} here", param="beam_width")
        self.ask = max(self.keep, params.logprobs or 0)

    def step(self, nexts: Sequence[Position]) -> None:
        """Take in, for each running sequence, the log-probabilities of its most likely next tokens."""
        every = [
            (beam.logprob + one.logprob, token, beam, trail)
            for beam, trail in zip(self.running, self._trails(nexts), strict=True)
            for token, one in trail.position.items()
        ]
        every.sort(key=lambda found: -found[0])
        best = [
            self._ended(Beam((*beam.tokens, token), logprob, trail))
            for logprob, token, beam, trail in every[: self.keep]
        ]
        self._finish([beam for beam in best[: self._params.beam_width] if self._is_over(beam)])
        self.running = [beam for beam in best if not self._is_over(beam)][: self._params.beam_width]
        if not self._worthwhile():
            self.running = []

    def results(self) -> list[Beam]:
        """Return the finished sequences, best first."""
        return self._finished

    def so_far(self) -> list[Beam]:
        """Return the finished sequences and behind them those that go on, as many as are wanted."""
        return [*self._finished, *self.running][: self._params.beam_width]

    def _trails(self, nexts: Sequence[Position]) -> list[Trail]:
        return [Trail(beam.trail, position) for beam, position in zip(self.running, nexts, strict=True)]

    def _ended(self, beam: Beam) -> Beam:
        """Return a sequence that knows whether its last token ends it."""
        last = beam.tokens[-1]
        stop = last if last in self._ends else self._stopped(beam.tokens) if self._stopped else None
        return beam if stop is None else Beam(beam.tokens, beam.logprob, beam.trail, stop=stop)

    def _is_over(self, beam: Beam) -> bool:
        return beam.stop is not None or len(beam.tokens) >= self._max_tokens

    def _finish(self, over: Sequence[Beam]) -> None:
        full = len(self._finished) >= self._params.beam_width
        if full and self._params.early_stopping is True:
            return
        scored = [
            Beam(beam.tokens, beam.logprob, beam.trail, self._score(beam.logprob, len(beam.tokens)), beam.stop)
            for beam in over
        ]
        ranked = sorted([*self._finished, *scored], key=lambda beam: -beam.score)
        self._finished = ranked[: self._params.beam_width]

    def _worthwhile(self) -> bool:
        """Whether going on may give anything better."""
        if not self.running or len(self._finished) < self._params.beam_width:
            return bool(self.running)
        early = self._params.early_stopping
        if early is True:
            return False
        best = self.running[0]
        # With a reward for length the best case is the longest; `False` looks at the present length all the same.
        longest = early == "never" and self._params.length_penalty > 0
        length = self._max_tokens if longest else len(best.tokens)
        return self._score(best.logprob, length) > self._finished[-1].score

    def _score(self, logprob: float, length: int) -> float:
        try:
            return logprob / float(length**self._params.length_penalty)
        except (OverflowError, ZeroDivisionError):  # an extreme penalty: length alone decides
            return -0.0 if self._params.length_penalty > 0 else -math.inf


Ask = Callable[[Sequence[list[int]], int], Sequence[Position]]
"""Returns for each sequence of token ids the log-probabilities of the most likely next tokens, at least so many."""


def search(prompts: Sequence[Sequence[int]], searches: Sequence[BeamSearch], ask: Ask) -> None:
    """Bring each prompt's search to its end; all of them go on side by side."""
    while wanted := [(prompt, one) for prompt, one in zip(prompts, searches, strict=True) if one.running]:
        ids = [[*prompt, *beam.tokens] for prompt, one in wanted for beam in one.running]
        found = iter(ask(ids, max(one.ask for _, one in wanted)))
        for _, one in wanted:
            one.step([next(found) for _ in one.running])
