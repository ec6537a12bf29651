"""Structured output as a stage participant: compile while waiting, mask while the model runs, follow the tokens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from core.api.errors import RequestError
from core.api.structured import GrammarMatcher
from core.api.tokenizer import Tokenizer
from core.engine.compiling.pool import CompilePool, Job
from core.engine.participants import StageParticipant
from core.engine.request import Request
from core.engine.step import StepPlan, StepResult, TokenMasks
from core.engine.thinking import ThinkingMatcher

logger = logging.getLogger(__name__)

STUCK = "CORE-E162 the grammar cannot be followed any further"

WORD = 32
"""Tokens per element of a mask."""


class StructuredParticipant(StageParticipant):
    """Drives the structured-output backends.

    A constrained row runs in lockstep: which tokens it may take next is known only when the last one is. Other rows of
    the same steps go on being scheduled ahead.

    Args:
        tokenizer: Returns the model's tokenizer, for models that think before they answer.
        close: Called when the engine stops.
    """

    def __init__(
        self,
        pool: CompilePool,
        vocab_size: int,
        tokenizer: Callable[[], Tokenizer],
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._pool, self._tokenizer, self._close = pool, tokenizer, close
        self._words = -(-vocab_size // WORD)
        self._compiling: dict[int, Job] = {}
        self._ready: dict[int, GrammarMatcher] = {}
        self._rows: dict[int, GrammarMatcher] = {}
        self._row_of: dict[int, int] = {}  # by handle: a request that has ended does not know its row any more
        self._stuck: dict[int, dict[int, str]] = {}  # by step and place in it: why there is no mask

    def arrive(self, request: Request) -> None:
        """Start compiling the request's grammar. Raises `ValueError` for a kind that no backend knows."""
        grammar = request.params.grammar
        if grammar is not None:
            self._compiling[request.handle] = self._pool.submit(grammar)

    def admit(self, request: Request) -> bool:
        """Hold the request back while its grammar is compiled. Raises `RequestError` for a grammar that is wrong."""
        job = self._compiling.get(request.handle)
        if job is None:
            return True
        if not self._pool.check(job):
            return False
        try:
            self._ready[request.handle] = self._matcher(request, job)
        except Exception as error:
            grammar = request.params.grammar
            param = grammar.param if grammar is not None else None
            raise RequestError(f"CORE-E160 the grammar cannot be used: {error}", param=param) from error
        del self._compiling[request.handle]
        return True

    def enter(self, request: Request) -> bool:
        """Give the request its matcher."""
        matcher = self._ready.pop(request.handle, None)
        if matcher is not None:
            self._rows[request.row] = matcher
            self._row_of[request.handle] = request.row
        return matcher is not None

    def plan(self, plan: StepPlan) -> None:
        """Announce masks, if constrained rows sample in this step."""
        if self._rows and not self._rows.keys().isdisjoint(plan.rows[plan.samples].tolist()):
            plan.masks_follow = True

    def masks(self, plan: StepPlan) -> TokenMasks:
        """Make the masks of the constrained rows that sample in this step."""
        places = [place for place in np.flatnonzero(plan.samples).tolist() if int(plan.rows[place]) in self._rows]
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
            refusal = _refusal(matcher, request, int(tokens[index])) if matcher and request else None
            if refusal is not None:
                errors[index] = refusal
        return errors

    def finish(self, request: Request) -> None:
        """Forget the request."""
        self._compiling.pop(request.handle, None)
        self._ready.pop(request.handle, None)
        row = self._row_of.pop(request.handle, None)
        if row is not None:
            del self._rows[row]

    def close(self) -> None:
        """Stop compiling."""
        self._pool.close()
        self._close()

    def _matcher(self, request: Request, job: Job) -> GrammarMatcher:
        matcher, grammar = job.result().matcher(), request.params.grammar
        thinking = None if grammar is None else grammar.thinking
        if thinking is None:
            return matcher
        return ThinkingMatcher(matcher, thinking, self._tokenizer(), request.stop_ids)


def _refusal(matcher: GrammarMatcher, request: Request, token: int) -> str | None:
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
