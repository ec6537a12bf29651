"""From the configuration to the participant of structured output."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import cast

import numpy as np

from core.api.descriptors import StructuredOutputSpec
from core.api.structured import (
    CompiledGrammar,
    GrammarMatcher,
    LoadsGrammars,
    StructuredContext,
    StructuredOutputBackend,
)
from core.config.resolved import EngineConfig
from core.engine.closing import compiled_value
from core.engine.compiling.child import GROUP, Order
from core.engine.compiling.pool import Compile, CompilePool, Compiler, PoolLimits
from core.engine.compiling.remote import IsolatedCompiler
from core.engine.structured import WORD, StructuredParticipant
from core.plugins.boot import ActivePlugins


def structured_participant(config: EngineConfig, active: ActivePlugins) -> StructuredParticipant | None:
    """Return what drives the plan's structured-output backends, in its order, and bounds the thinking.

    Without backends it does the latter alone; an engine that pools has none.
    """
    if config.pooling is not None:
        return None
    options = config.options.structured
    limits = PoolLimits(options.grammar_timeout, options.grammar_workers, options.grammar_cache_mib * 2**20)
    path = Path(config.checkpoint.path)
    tokenizer = cache(lambda: active.impl("core.weight_loaders")().tokenizer(path))
    vocab_size = config.shape.vocab_size
    compilers, isolated = [], []
    for planned, descriptor, make in active.impls(GROUP):
        spec = cast(StructuredOutputSpec, descriptor)
        backend: StructuredOutputBackend = make(StructuredContext(vocab_size, tokenizer, planned.options))
        compile = backend.compile
        if spec.isolate:
            order = Order(
                config.model_dump_json(), planned.name, limits.seconds, memory=options.grammar_memory_mib * 2**20
            )
            apart = IsolatedCompiler(order, cast(LoadsGrammars, backend).load)
            isolated.append(apart)
            compile = apart.compile
        compilers.append(Compiler(planned.name, spec.grammars, satisfiable(compile, vocab_size)))
    read = partial(compiled_value, additional_properties=options.additional_properties)
    ahead, pool = config.options.scheduler.overlap_depth, CompilePool(compilers, limits, read=read)
    return StructuredParticipant(pool, vocab_size, tokenizer, partial(_close, isolated), ahead)


def satisfiable(compile: Compile, vocab_size: int) -> Compile:
    """Return a compiler that also refuses what its library cannot follow, or what no text fits, from the beginning.

    The next driver may do better, and a request that cannot succeed does not run first.
    """

    def checked(kind: str, value: str) -> CompiledGrammar:
        compiled = compile(kind, value)
        try:
            _begin(compiled.matcher(), np.zeros(-(-vocab_size // WORD), np.int32))
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        return compiled

    return checked


def _begin(matcher: GrammarMatcher, mask: np.ndarray) -> None:
    """Write one token, so that limits which any text would meet are met. Raises `ValueError` if there is none."""
    matcher.fill(mask)
    if not mask.any():
        raise ValueError("no text fits it")
    word = int(np.flatnonzero(mask)[0])
    bits = int(mask[word])
    if matcher.accept(word * WORD + (bits & -bits).bit_length() - 1):
        mask[:] = 0
        matcher.fill(mask)


def _close(isolated: list[IsolatedCompiler]) -> None:
    for one in isolated:
        one.close()
