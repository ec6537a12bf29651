"""From what an engine gives a participant to the one that drives the structured-output backends."""

from __future__ import annotations

from functools import partial
from typing import cast

from core.api.descriptors import StructuredOutputSpec
from core.api.kinds import Chosen
from core.api.participants import EngineSetup
from core.api.structured import CompiledGrammar, LoadsGrammars, StructuredOutputBackend
from core_plugin_structured.closing import compiled_value
from core_plugin_structured.compiling.child import Order
from core_plugin_structured.compiling.pool import CompilePool, Compiler, PoolLimits
from core_plugin_structured.compiling.remote import IsolatedCompiler
from core_plugin_structured.compiling.trial import begin
from core_plugin_structured.engine import StructuredParticipant

GROUP = "core.structured_output"
MIB = 2**20


class StructuredOutput(StructuredParticipant):
    """Drives the chosen structured-output backends, in their order, and bounds the thinking.

    Without backends it does the latter alone.
    """

    def __init__(self, setup: EngineSetup) -> None:
        settings, self._isolated = setup.settings, list[IsolatedCompiler]()
        limits = PoolLimits(
            settings["grammar_timeout"],
            settings["grammar_workers"],
            settings["grammar_cache_mib"] * MIB,
            settings["grammar_memory_mib"] * MIB,
        )
        compilers = [self._compiler(setup, chosen, limits) for chosen in setup.chosen(GROUP)]
        read = partial(compiled_value, additional_properties=settings["additional_properties"])
        pool = CompilePool(compilers, limits, read=read)
        super().__init__(pool, setup.vocab_size, setup.tokenizer, self._end)
        self.name = setup.name

    def _compiler(self, setup: EngineSetup, chosen: Chosen, limits: PoolLimits) -> Compiler:
        order = Order(setup.dumps(chosen), chosen.name, limits.seconds, limits.memory_bytes, setup.vocab_size)
        apart = IsolatedCompiler(order, partial(_bring, chosen, setup.vocab_size), setup.tokenizer)
        self._isolated.append(apart)
        return Compiler(chosen.name, cast(StructuredOutputSpec, chosen.spec).grammars, apart.compile)

    def _end(self) -> None:
        for one in self._isolated:
            one.close()


def _bring(chosen: Chosen, vocab_size: int, kind: str, value: str, data: bytes) -> CompiledGrammar:
    """Return in this process a grammar that a child has compiled and tried, so that its effort is known and bounded."""
    backend: StructuredOutputBackend = chosen.value
    travels = cast(StructuredOutputSpec, chosen.spec).isolate
    compiled = cast(LoadsGrammars, backend).load(data) if travels else backend.compile(kind, value)
    begin(compiled, vocab_size, chosen)  # the first mask, which may take long, is not made in a step
    return compiled
