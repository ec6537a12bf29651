"""Structured output as a stage participant: compile while waiting, mask before sampling, follow what was sampled."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from core.api.structured import CompiledGrammar, GrammarMatcher, StructuredOutputBackend
from core.engine.participants import StageParticipant
from core.engine.request import Request
from core.engine.sampling import Grammar
from core.engine.step import StepPlan, TokenMasks

logger = logging.getLogger(__name__)

WORD = 32
"""Tokens per element of a mask."""

CACHED = 256
"""Compiled grammars that are kept, the least recently used going first."""


class StructuredParticipant(StageParticipant):
    """Drives one structured-output backend.

    A constrained row runs in lockstep: which tokens it may take next is known only when the last one is. Other rows of
    the same steps go on being scheduled ahead.

    Args:
        grammars: Kinds that the backend compiles.
    """

    def __init__(self, backend: StructuredOutputBackend, grammars: frozenset[str], vocab_size: int) -> None:
        self._backend, self._grammars = backend, grammars
        self._words = -(-vocab_size // WORD)
        self._pool = ThreadPoolExecutor(1, "core-grammar")
        self._compiled: dict[Grammar, Future[CompiledGrammar]] = {}
        self._compiling: dict[int, Future[CompiledGrammar]] = {}
        self._ready: dict[int, GrammarMatcher] = {}
        self._rows: dict[int, GrammarMatcher] = {}

    def arrive(self, request: Request) -> None:
        """Start compiling the request's grammar. Raises `ValueError` for a kind that the backend does not know."""
        grammar = request.params.grammar
        if grammar is None:
            return
        if grammar.kind not in self._grammars:
            known = ", ".join(sorted(self._grammars))
            raise ValueError(f"grammars of kind '{grammar.kind}' are not supported here; supported: {known}")
        self._compiling[request.handle] = self._compile(grammar)

    def admit(self, request: Request) -> bool:
        """Hold the request back while its grammar is compiled. Raises `ValueError` for a grammar that is wrong."""
        future = self._compiling.get(request.handle)
        if future is None:
            return True
        if not future.done():
            return False
        try:
            self._ready[request.handle] = future.result().matcher()
        except Exception as error:
            raise ValueError(f"the grammar cannot be used: {error}") from error
        del self._compiling[request.handle]
        return True

    def enter(self, request: Request) -> bool:
        """Give the request its matcher."""
        matcher = self._ready.pop(request.handle, None)
        if matcher is not None:
            self._rows[request.row] = matcher
        return matcher is not None

    def plan(self, plan: StepPlan) -> None:
        """Add the masks of the constrained rows that sample in this step."""
        rows = [row for row in plan.rows[plan.samples].tolist() if row in self._rows] if self._rows else []
        if not rows:
            return
        bits = np.zeros((len(rows), self._words), np.int32)
        for row, mask in zip(rows, bits):
            try:
                self._rows[row].fill(mask)
            except Exception:
                logger.exception("the mask of row %d cannot be made; its request ends", row)
                mask[:] = 0  # nothing may be sampled, which ends this request alone
        plan.masks = TokenMasks(np.array(rows, np.int32), bits)

    def settle(self, requests: Sequence[Request | None], tokens: np.ndarray) -> Mapping[int, str]:
        """Move the matchers on."""
        errors: dict[int, str] = {}
        if not self._rows:
            return errors
        for index, request in enumerate(requests):
            matcher = self._rows.get(request.row) if request is not None else None
            if matcher is not None and request is not None and not _accepts(matcher, request, int(tokens[index])):
                errors[index] = f"token {int(tokens[index])} does not follow the request's grammar"
        return errors

    def finish(self, request: Request) -> None:
        """Forget the request."""
        self._compiling.pop(request.handle, None)
        self._ready.pop(request.handle, None)
        self._rows.pop(request.row, None)

    def close(self) -> None:
        """Stop compiling."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compile(self, grammar: Grammar) -> Future[CompiledGrammar]:
        known = self._compiled.pop(grammar, None)
        if known is None or (known.done() and known.exception() is not None):
            known = self._pool.submit(self._backend.compile, grammar.kind, grammar.value)
        self._compiled[grammar] = known
        while len(self._compiled) > CACHED:
            del self._compiled[next(iter(self._compiled))]
        return known


def _accepts(matcher: GrammarMatcher, request: Request, token: int) -> bool:
    """Tell a matcher of a token; one that ends the text anyway is none of its business."""
    if token in request.stop_ids:
        return True
    try:
        return matcher.accept(token)
    except Exception:
        logger.exception("the grammar of request %d failed; the request ends", request.handle)
        return False
