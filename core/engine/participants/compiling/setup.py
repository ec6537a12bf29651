"""From the configuration to the participant of structured output."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import cast

from core.api.descriptors import StructuredOutputSpec
from core.api.structured import (
    CompiledGrammar,
    LoadsGrammars,
    StructuredContext,
    StructuredOutputBackend,
)
from core.config.resolved import EngineConfig
from core.engine.participants.closing import compiled_value
from core.engine.participants.compiling.child import GROUP, Order
from core.engine.participants.compiling.pool import CompilePool, Compiler, PoolLimits
from core.engine.participants.compiling.remote import IsolatedCompiler
from core.engine.participants.compiling.trial import begin
from core.engine.participants.structured import StructuredParticipant
from core.plugins.boot import ActivePlugins
from core.plugins.handed import Handed
from core.plugins.kinds import kind_of


def structured_participant(config: EngineConfig, active: ActivePlugins) -> StructuredParticipant:
    """Return what drives the plan's structured-output backends, in its order, and bounds the thinking.

    Without backends it does the latter alone.
    """
    options = config.options.structured
    mib = 2**20
    limits = PoolLimits(
        options.grammar_timeout,
        options.grammar_workers,
        options.grammar_cache_mib * mib,
        options.grammar_memory_mib * mib,
    )
    path = Path(config.checkpoint.path)
    tokenizer = cache(lambda: active.new_of("core.weight_loaders").tokenizer(path))
    vocab_size = config.shape.vocab_size
    compilers, isolated = [], []
    for planned, descriptor, make in active.impls(GROUP):
        spec = cast(StructuredOutputSpec, descriptor)
        backend: StructuredOutputBackend = make(StructuredContext(vocab_size, tokenizer, planned.options))
        handed = Handed(f"{kind_of(GROUP).label} {planned.owner}")
        order = Order(config.model_dump_json(), planned.name, limits.seconds, memory=limits.memory_bytes)
        bring = partial(_bring, backend, spec.isolate, vocab_size, handed)
        apart = IsolatedCompiler(order, bring, tokenizer)
        isolated.append(apart)
        compilers.append(Compiler(planned.name, spec.grammars, apart.compile))
    read = partial(compiled_value, additional_properties=options.additional_properties)
    pool = CompilePool(compilers, limits, read=read)
    return StructuredParticipant(pool, vocab_size, tokenizer, partial(_close, isolated))


def _bring(
    backend: StructuredOutputBackend,
    travels: bool,
    vocab_size: int,
    handed: Handed,
    kind: str,
    value: str,
    data: bytes,
) -> CompiledGrammar:
    """Return in this process a grammar that a child has compiled and tried, so that its effort is known and bounded."""
    compiled = cast(LoadsGrammars, backend).load(data) if travels else backend.compile(kind, value)
    begin(compiled, vocab_size, handed)  # the first mask, which may take long, is not made in a step
    return compiled


def _close(isolated: list[IsolatedCompiler]) -> None:
    for one in isolated:
        one.close()
