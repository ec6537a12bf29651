"""Structured output and bounded thinking as a stage participant: compile while waiting, mask while the model runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from core.api.errors import RequestError
from core.api.participants import AllowedTokens, Participant, StagedRequest
from core.api.steps import StepPlan, StepResult
from core.api.structured import GrammarMatcher
from core.api.tokenizer import Tokenizer
from core_plugin_structured.compiling.pool import CompilePool, Job
from core_plugin_structured.compiling.trial import WORD
from core_plugin_structured.parts import NAME, PARTS
from core_plugin_structured.thinking import ThinkingMatcher, ThoughtLimit
from core_plugin_structured.timed import TimedMatcher

logger = logging.getLogger(__name__)

STUCK = "CORE-E162 the grammar cannot be followed any further"

Matcher = GrammarMatcher | ThoughtLimit


class StructuredParticipant(Participant):
    """Drives the structured-output backends, and ends thoughts that have used up their budget.

    Constrained rows are scheduled ahead like all others. Which tokens a row may take is known once its last one is, so
    a step's masks are its late part: made when the step before has settled, while the step's forward pass runs.

    Args:
        tokenizer: Returns the model's tokenizer, for models that think before they answer.
        close: Called when the engine stops.
    """

    name = NAME
    parts = PARTS

    def __init__(
        self,
        pool: CompilePool,
        vocab_size: int,
        tokenizer: Callable[[], Tokenizer],
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._pool, self._tokenizer, self._close = pool, tokenizer, close
        self._words = -(-vocab_size // WORD)
        self._jobs: dict[int, Job] = {}  # until their requests end: what is in use counts towards the memory
        self._compiling: dict[int, Job] = {}
        self._ready: dict[int, Matcher] = {}
        self._rows: dict[int, Matcher] = {}
        self._row_of: dict[int, int] = {}  # by handle: a request that has ended does not know its row any more
        self._stuck: dict[int, dict[int, str]] = {}  # by step and place in it: why there is no mask

    def arrive(self, request: StagedRequest) -> None:
        """Start compiling the request's grammar. Raises `ValueError` for a kind that no backend knows."""
        grammar = request.params.grammar
        if grammar is not None:
            job = self._pool.submit(grammar)
            self._jobs[request.handle] = self._compiling[request.handle] = job

    def admit(self, request: StagedRequest) -> bool:
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

    def _limit(self, request: StagedRequest) -> None:
        """Bound the thinking of a new request that has a budget and no grammar."""
        budget, thinking = request.params.thinking_token_budget, request.params.thinking
        if budget is None or thinking is None or request.row >= 0 or request.handle in self._ready:
            return
        try:
            limit = ThoughtLimit(thinking, budget, self._tokenizer(), request.prompt)
        except Exception as error:
            said = f"CORE-E163 the thinking cannot be bounded: {error}"
            raise RequestError(said, param="thinking_token_budget") from error
        self._ready[request.handle] = _told(limit, request)

    def run(self, request: StagedRequest) -> None:
        """Give the request its matcher, the first time it runs."""
        matcher = self._ready.pop(request.handle, None)
        if matcher is not None:
            self._rows[request.row] = matcher
            self._row_of[request.handle] = request.row

    def drafts(self, rows: np.ndarray, room: np.ndarray) -> np.ndarray | None:
        """Allow none to constrained rows: a row has one mask in a step, and further tokens would need their own."""
        if not self._rows:
            return None
        return np.where(np.isin(rows, list(self._rows)), 0, room)

    def plan(self, plan: StepPlan) -> None:
        """Announce masks, if rows that may be constrained by then sample in this step."""
        if self._rows and any(row in self._rows for row in plan.rows[plan.samples].tolist()):
            plan.late.append(self.name)

    def late(self, plan: StepPlan, alive: np.ndarray) -> AllowedTokens | None:
        """Make the masks of the constrained rows that sample in this step."""
        places = [i for i in np.flatnonzero(plan.samples & alive).tolist() if self._binds(int(plan.rows[i]))]
        if not places:
            return None
        bits = np.zeros((len(places), self._words), np.int32)
        for place, mask in zip(places, bits, strict=True):
            row = int(plan.rows[place])
            try:
                self._rows[row].fill(mask)
            except Exception as error:
                _log(f"the mask of row {row} cannot be made; its request ends", error)
                self._stuck.setdefault(plan.number, {})[place] = f"{STUCK}: {error}"
                mask[:] = 0  # nothing may be sampled, which ends this request alone
        return AllowedTokens(plan.rows[places].astype(np.int32), bits)

    def collect(self, plan: StepPlan, result: StepResult) -> None:
        """Say why a row without a mask got no token."""
        result.errors.update(self._stuck.pop(result.number, {}))

    def settle(self, requests: Sequence[StagedRequest | None], tokens: np.ndarray) -> Mapping[int, str]:
        """Move the matchers on."""
        errors: dict[int, str] = {}
        if not self._rows:
            return errors
        for index, request in enumerate(requests):
            matcher = self._rows.get(request.row) if request is not None else None
            if matcher is None or request is None:
                continue
            refusal = _refusal(matcher, request, int(tokens[index]))
            if refusal is not None:
                errors[index] = refusal
        return errors

    def finish(self, request: StagedRequest) -> None:
        """Forget the request."""
        row = self._row_of.pop(request.handle, None)
        if row is not None:
            del self._rows[row]  # first of all: its next request has another grammar, or none
        self._ready.pop(request.handle, None)
        self._compiling.pop(request.handle, None)
        job = self._jobs.pop(request.handle, None)
        if job is not None:
            self._pool.release(job)

    def close(self) -> None:
        """Stop compiling."""
        self._pool.close()
        self._close()

    def _binds(self, row: int) -> bool:
        """Whether the row's next token is not free."""
        matcher = self._rows.get(row)
        return matcher is not None and not (isinstance(matcher, ThoughtLimit) and matcher.idle)

    def _matcher(self, request: StagedRequest, job: Job) -> GrammarMatcher:
        matcher, grammar = TimedMatcher(job.result().matcher()), request.params.grammar
        thinking = None if grammar is None else grammar.thinking
        if thinking is None:
            return matcher
        if thinking.budget is None:
            thinking = msgspec.structs.replace(thinking, budget=request.params.thinking_token_budget)
        return ThinkingMatcher(matcher, thinking, self._tokenizer(), request.stop_ids)


M = TypeVar("M", bound=Matcher)


def _told(matcher: M, request: StagedRequest) -> M:
    """Tell a new matcher of what was generated before. Raises `ValueError` where the grammar does not allow it."""
    for token in request.generated.tolist():
        refusal = _refusal(matcher, request, token)
        if refusal is not None:
            raise ValueError(refusal)
    return matcher


def _refusal(matcher: Matcher, request: StagedRequest, token: int) -> str | None:
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
