"""Asks whether this platform can be used here. Torch-free; runs in the parent at every start."""

from __future__ import annotations

from core.api.verdict import ProbeResult
from core_plugin_cpu.manifest import NATIVE
from core_plugin_cpu.native import library
from core_plugin_cpu.processor import available_cores, read_processor


def probe() -> ProbeResult:
    """Report the host processor: always available; cores and instruction sets as facts. Never raises.

    Facts: `cores`, `isa`, `processor`, and `native`, the instruction set of the native library or why there is none.
    """
    try:
        processor, cores = read_processor(), available_cores()
    except Exception as error:
        return ProbeResult(available=True, reason=f"processor not recognised ({error})", facts={"cores": 1, "isa": ""})
    isa = ", ".join(processor.isa)
    found = f"{cores} core{'s' if cores != 1 else ''}" + (f", {isa}" if isa else "")
    native, features = _native()
    facts = {"cores": cores, "isa": isa, "processor": processor.name, "native": native}
    return ProbeResult(available=True, reason=found, facts=facts, features=features)


def _native() -> tuple[str, frozenset[str]]:
    try:
        if library.available():
            return library.isa(), frozenset({NATIVE})
        return library.reason(), frozenset()
    except Exception as error:
        return str(error), frozenset()
