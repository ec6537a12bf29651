"""Structured output and bounded thinking as a stage participant: compile while waiting, mask while the model runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from core.api.errors import RequestError
from core.api.structured import GrammarMatcher
from core.api.tokenizer import Tokenizer
from core.engine.compiling.pool import CompilePool, Job
from core.engine.compiling.trial import WORD
from core.engine.participants import StageParticipant
from core.engine.request import Request
from core.engine.step import StepPlan, StepResult, TokenMasks
from core.engine.thinking import ThinkingMatcher, ThoughtLimit
from core.engine.timed import TimedMatcher

logger = logging.getLogger(__name__)

STUCK = "CORE-E162 the grammar cannot be followed any further"

Matcher = GrammarMatcher | ThoughtLimit


class StructuredParticipant(StageParticipant):
    """Drives the structured-output backends, and ends thoughts that have used up their budget.

    A constrained row runs in lockstep: which tokens it may take next is known only when the last one is. Other rows of
    the same steps go on being scheduled ahead, and so does one with a budget for its thinking, except where the budget
    is about to be used up.

    Args:
        tokenizer: Returns the model's tokenizer, for models that think before they answer.
        close: Called when the engine stops.
        ahead: Steps that may be in flight when one is settled.
    """

    def __init__(
        self,
        pool: CompilePool,
        vocab_size: int,
        tokenizer: Callable[[], Tokenizer],
        close: Callable[[], None] = lambda: None,
        ahead: int = 0,
    ) -> None:
        self._pool, self._tokenizer, self._close, self._ahead = pool, tokenizer, close, ahead
        self._words = -(-vocab_size // WORD)
        self._jobs: dict[int, Job] = {}  # until their requests end: what is in use counts towards the memory
        self._compiling: dict[int, Job] = {}
        self._ready: dict[int, Matcher] = {}
        self._rows: dict[int, Matcher] = {}
        self._row_of: dict[int, int] = {}  # by handle: a request that has ended does not know its row any more
        self._paces: dict[int, bool] = {}
        self._stuck: dict[int, dict[int, str]] = {}  # by step and place in it: why there is no mask

    def arrive(self, request: Request) -> None:
        """Start compiling the request's grammar. Raises `ValueError` for a kind that no backend knows."""
        grammar = request.params.grammar
        if grammar is not None:
            job = self._pool.submit(grammar)
            self._jobs[request.handle] = self._compiling[request.handle] = job

    def admit(self, request: Request) -> bool:
        """Hold the request back while its grammar is compiled. Raises `RequestError` for a grammar that is wrong.

        A request that came with output goes on where that ends: its matcher is told of it.
        """
        job = self._compiling.get(request.handle)
        if job is None:
            self._limit(request)
            return True
        if not self._pool.check(job):
            return False
        try:
            self._ready[request.handle] = _told(self._matcher(request, job), request)
        except Exception as error:
            grammar = request.params.grammar
            param = grammar.param if grammar is not None else None
            raise RequestError(f"CORE-E160 the grammar cannot be used: {error}", param=param) from error
        del self._compiling[request.handle]
        return True

    def _limit(self, request: Request) -> None:
        """Bound the thinking of a new request that has a budget and no grammar."""
        budget, thinking = request.params.thinking_token_budget, request.params.thinking
        if budget is None or thinking is None or request.row >= 0 or request.handle in self._ready:
            return
        try:
            limit = ThoughtLimit(thinking, budget, self._tokenizer(), request.prompt, self._ahead)
        except Exception as error:
            said = f"CORE-E163 the thinking cannot be bounded: {error}"
            raise RequestError(said, param="thinking_token_budget") from error
        self._ready[request.handle] = _told(limit, request)

    def enter(self, request: Request) -> bool:
        """Give the request its matcher."""
        matcher = self._ready.pop(request.handle, None)
        if matcher is not None:
            self._rows[request.row] = matcher
            self._row_of[request.handle] = request.row
        return matcher is not None and _tight(matcher)

    def plan(self, plan: StepPlan) -> None:
        """Announce masks, if constrained rows sample in this step."""
        if self._rows and self._places(plan):
            plan.masks_follow = True

    def masks(self, plan: StepPlan) -> TokenMasks:
        """Make the masks of the constrained rows that sample in this step."""
        places = self._places(plan)
        bits = np.zeros((len(places), self._words), np.int32)
        for place, mask in zip(places, bits, strict=True):
            row = int(plan.rows[place])
            try:
                self._rows[row].fill(mask)
            except Exception as error:
                _log(f"the mask of row {row} cannot be made; its request ends", error)
                self._stuck.setdefault(plan.number, {})[place] = f"{STUCK}: {error}"
                mask[:] = 0  # nothing may be sampled, which ends this request alone
        return TokenMasks(plan.rows[places].astype(np.int32), bits)

    def collect(self, result: StepResult) -> None:
        """Say why a row without a mask got no token."""
        result.errors.update(self._stuck.pop(result.number, {}))

    def settle(self, requests: Sequence[Request | None], tokens: np.ndarray) -> Mapping[int, str]:
        """Move the matchers on."""
        errors: dict[int, str] = {}
        if not self._rows:
            return errors
        for index, request in enumerate(requests):
            matcher = self._rows.get(request.row) if request is not None else None
            if matcher is None or request is None:
                continue
            before = _tight(matcher)
            refusal = _refusal(matcher, request, int(tokens[index]))
            if refusal is not None:
                errors[index] = refusal
            elif _tight(matcher) != before:
                self._paces[request.row] = not before
        return errors

    def paces(self) -> Mapping[int, bool]:
        """Hold the rows back whose budget is about to be used up, and let those go whose thinking has ended."""
        if not self._paces:
            return {}
        found, self._paces = self._paces, {}
        return found

    def finish(self, request: Request) -> None:
        """Forget the request."""
        self._compiling.pop(request.handle, None)
        job = self._jobs.pop(request.handle, None)
        if job is not None:
            self._pool.release(job)
        self._ready.pop(request.handle, None)
        row = self._row_of.pop(request.handle, None)
        if row is not None:
            del self._rows[row]

    def close(self) -> None:
        """Stop compiling."""
        self._pool.close()
        self._close()

    def _places(self, plan: StepPlan) -> list[int]:
        """Return the places of the rows whose next token is not free."""
        return [place for place in np.flatnonzero(plan.samples).tolist() if self._binds(int(plan.rows[place]))]

    def _binds(self, row: int) -> bool:
        matcher = self._rows.get(row)
        return matcher is not None and not (isinstance(matcher, ThoughtLimit) and matcher.idle)

    def _matcher(self, request: Request, job: Job) -> GrammarMatcher:
        matcher, grammar = TimedMatcher(job.result().matcher()), request.params.grammar
        thinking = None if grammar is None else grammar.thinking
        if thinking is None:
            return matcher
        if thinking.budget is None:
            thinking = msgspec.structs.replace(thinking, budget=request.params.thinking_token_budget)
        return ThinkingMatcher(matcher, thinking, self._tokenizer(), request.stop_ids)


M = TypeVar("M", bound=Matcher)


def _told(matcher: M, request: Request) -> M:
    """Tell a new matcher of what was generated before. Raises `ValueError` where the grammar does not allow it."""
    for token in request.generated.tolist():
        refusal = _refusal(matcher, request, token)
        if refusal is not None:
            raise ValueError(refusal)
    return matcher


def _tight(matcher: Matcher) -> bool:
    """Whether the row waits for each token before the next is scheduled."""
    return not isinstance(matcher, ThoughtLimit) or matcher.tight


def _refusal(matcher: Matcher, request: Request, token: int) -> str | None:
    """Tell a matcher of a token; one that ends the text anyway is none of its business. Return why it cannot go on."""
    if token in request.stop_ids:
        return None
    try:
        if matcher.accept(token):
            return None
    except Exception as error:
        _log(f"the grammar of request {request.handle} cannot go on; the request ends", error)
        return f"{STUCK}: {error}"
    return f"CORE-E161 token {token} does not follow the request's grammar"


def _log(what: str, error: Exception) -> None:
    """Log a failed matcher; a limit of its library (`RuntimeError`) is the grammar's doing and no traceback's worth."""
    limit = isinstance(error, RuntimeError)
    logger.log(logging.WARNING if limit else logging.ERROR, "%s: %s", what, error, exc_info=None if limit else error)
